#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ds_plugin.h"

namespace ds {

// A tokenizer, which turns text into token ids and back, implemented by libds_text.so. It is
// immutable, so any number of threads may share it. docs/reference/tokenizers.md describes the
// kinds and their files.
class Tokenizer {
 public:
  // Opens a tokenizer as open_tokenizer() does.
  explicit Tokenizer(const std::string& name);

  // Returns "bytes" or the path of the file from which the tokenizer was read.
  const std::string& name() const { return name_; }
  // Returns the size of the vocabulary: every id is in [0, vocab).
  int64_t vocab() const { return vocab_; }

  // Returns the ids of a text. Special tokens that the text spells out are recognized. With
  // `special`, the tokens that the file puts around a text are added, for example a
  // beginning-of-text token. Each maximal part that is not UTF-8 is encoded as U+FFFD; only "bytes"
  // keeps such bytes.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const;

  // Returns the text of ids, without special tokens if `skip_special`. An id without a token, which
  // models with a padded vocabulary may generate, becomes U+FFFD. The text is UTF-8; with "bytes"
  // it may be any bytes.
  std::string decode(std::span<const int32_t> tokens, bool skip_special = true) const;

  // Returns whether the text of `token` may change with the token that follows: bytes that are
  // spelled by one token each (byte fallback) form a character only together.
  bool joins_next(int32_t token) const;
  // Returns whether a token is not ordinary text: decode() may skip it, it ends a text, or it is
  // the mask token.
  bool is_special(int32_t token) const;

  // Returns the token that ends a text, if the files name one.
  std::optional<int32_t> end_of_text() const { return end_of_text_; }
  // Returns the token that replaces a hidden one in masked language models, if the files name one.
  std::optional<int32_t> mask_token() const { return mask_token_; }

  // The tokens that encode() with `special` puts around a text.
  struct Frame {
    std::vector<int32_t> before, after;
  };
  const Frame& frame() const { return frame_; }

  const ds_plugin_tokenizer& handle() const { return *handle_; }

 private:
  struct Close {
    void operator()(ds_plugin_tokenizer* tokenizer) const;
  };
  std::unique_ptr<ds_plugin_tokenizer, Close> handle_;
  std::string name_;
  int64_t vocab_ = 0;
  std::optional<int32_t> end_of_text_, mask_token_;
  Frame frame_;
};

// Opens "bytes", a tokenizer.json, a sentencepiece .model, a GGUF file, or a folder with
// tokenizer.json, tokenizer.model, vocab.json and merges.txt, or vocab.txt. In a folder, the first
// of these that exists is read. Throws DS_ERROR_NOT_FOUND if none exists, DS_ERROR_CORRUPT or
// DS_ERROR_CONFIG for a damaged file, and DS_ERROR_UNSUPPORTED for a part that libds lacks;
// messages name the file and the key. Without libds_text.so every function here throws
// DS_ERROR_UNSUPPORTED.
std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& name);

// A file of a tokenizer, and the name that a copy of it must have. read_tokenizer_file(path)
// returns its content.
struct TokenizerFile {
  std::string path, name;
};
// Returns the files that open_tokenizer(name) and ChatEncoder read; none for "bytes". A folder with
// copies of them, each under its `name`, is the same tokenizer. Throws like open_tokenizer if no
// file is found.
std::vector<TokenizerFile> tokenizer_files(const std::string& name);
// All names that a TokenizerFile may have, except additional_chat_templates/NAME.jinja.
inline constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                                  "tokenizer.model",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "vocab.txt",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "chat_template.jinja",
                                                  "config.json"};

// Returns xxh3-128 over the names and contents of tokenizer_files(name). Of config.json, only the
// tokenizer class that it selects is hashed. Token ids of tokenizers with different hashes must not
// be mixed.
std::string tokenizer_hash(const std::string& name);

// Learns a byte-level BPE tokenizer from a text whose documents are separated by NUL bytes, and
// writes its files into `folder`, which must exist. It has at most `vocab` tokens, which must be
// least_learned() or more. open_tokenizer(folder) opens it, and so does Hugging Face's tokenizers.
// Its files depend on the text and on vocab alone. Returns one line about the vocabulary. Throws
// DS_ERROR_USER if *stop [nullable] becomes non-zero meanwhile.
std::string learn_tokenizer(std::string_view text, int64_t vocab, const std::string& folder,
                            const volatile int32_t* stop = nullptr);
// Returns the number of tokens that every learned vocabulary has: the bytes and the end of a text.
int64_t least_learned();

// A decoder of tokens that come one by one. The parts that push() and finish() return, joined, are
// the text of all tokens, and each part consists of whole characters. A character whose bytes are
// spread over tokens comes with the last of them; the bytes of a run of joins_next() tokens come
// with the token after the run.
class TextStream {
 public:
  // The tokenizer must outlive the stream.
  explicit TextStream(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  // Starts with text that is already known and is not returned. Later tokens are decoded as its
  // continuation, which may begin with a space. Call it before the first push.
  void begin(std::span<const int32_t> tokens);
  // Returns the text that is complete with this token and was not returned before.
  std::string push(int32_t token);
  // Returns the text that was held back, with U+FFFD for incomplete characters.
  std::string finish();

 private:
  std::string take(bool all);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  // The context_ tokens whose text has been returned, then those that are held back.
  std::vector<int32_t> tokens_;
  size_t context_ = 0;
  // Bytes of the text of tokens_ that have been returned.
  size_t shown_ = 0;
};

}  // namespace ds
