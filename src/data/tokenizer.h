#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizers/range.h"

namespace ds {

// Text to token ids and back. Immutable: any number of threads may use one. Kinds and files:
// docs/reference/tokenizers.md.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual const std::string& name() const = 0;  // "bytes", or the path of the file it was read from
  virtual int64_t vocab() const = 0;            // every id is in [0, vocab)

  // Ids of a text. Special tokens that the text spells are recognized; with `special`, those that
  // the file puts around a text are added (a beginning-of-text token, say). Bytes that are not
  // UTF-8 count as U+FFFD each maximal part; only "bytes" keeps them.
  virtual std::vector<int32_t> encode(std::string_view text, bool special = true) const = 0;

  // As encode(text, false), and for each token the bytes of the text that it stands for: whole
  // characters, also where it is only some bytes of one; empty where it stands for none. Ranges of
  // neighbours may overlap. Of a text that is not UTF-8, they are of repair_utf8(text).
  struct Traced {
    std::vector<int32_t> tokens;
    std::vector<Range> sources;
  };
  virtual Traced encode_traced(std::string_view text) const = 0;

  // Text of ids, without special tokens if `skip_special`. An id that no token has, as models with
  // a padded vocabulary may draw, reads as U+FFFD. The text is UTF-8 (of "bytes": whatever the
  // bytes are).
  virtual std::string decode(std::span<const int32_t> tokens, bool skip_special = true) const = 0;

  // Whether the text of `token` may become another one by the token that follows: bytes that are
  // spelled one a token (byte fallback) are a character only together.
  virtual bool joins_next(int32_t token) const { return static_cast<void>(token), false; }

  virtual std::optional<int32_t> end_of_text()
      const = 0;  // the token that ends a text, when the files name one

  // What `special` of encode() puts around a text.
  struct Frame {
    std::vector<int32_t> before, after;
  };
  virtual Frame frame() const = 0;
  // The token that stands for a hidden one in masked language models, when the files name one.
  virtual std::optional<int32_t> mask_token() const { return std::nullopt; }
  // The special tokens that the files name, as a chat template sees them: name ("bos_token", ...)
  // and spelling.
  using Names = std::vector<std::pair<std::string, std::string>>;
  virtual Names names() const { return {}; }
  // Whether a token stands for no text: those that decode() skips, and the one that ends a text.
  virtual bool is_special(int32_t token) const = 0;
};

// "bytes"; else a tokenizer.json, a sentencepiece .model, or a folder with (the first that is
// there) tokenizer.json, tokenizer.model, vocab.json and merges.txt, vocab.txt. Throws
// DS_ERROR_NOT_FOUND when there is none, _CORRUPT or _CONFIG for a damaged file, _UNSUPPORTED for a
// part that libds does not have: all name file and key.
std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& name);

// The files that open_tokenizer(name) reads: none for "bytes". A copy of each under its `name` in
// one folder is the same tokenizer. Throws as open_tokenizer where none is found.
struct TokenizerFile {
  std::string path, name;
};
std::vector<TokenizerFile> tokenizer_files(const std::string& name);
// All names that a TokenizerFile may have.
inline constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                                  "tokenizer.model",
                                                  "vocab.json",
                                                  "merges.txt",
                                                  "vocab.txt",
                                                  "tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "chat_template.jinja"};

// xxh3-128 over the names and contents of those files: tokens of one tokenizer are none of another.
std::string tokenizer_hash(const std::string& name);

// Decoding as tokens come: the parts that push() and finish() return, joined, are the text of all
// tokens, and each part is whole characters. A character whose bytes are spread over tokens comes
// with the last of them; bytes of joins_next() tokens come with the token after their run.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer,
                      bool skip_special = true)  // the tokenizer outlives it
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  // Text that is known already and not returned again: what follows is decoded as its continuation,
  // which may begin with a space. Before the first push.
  void begin(std::span<const int32_t> tokens);
  std::string push(int32_t token);
  std::string finish();  // what was held back, with U+FFFD for incomplete characters

 private:
  std::string take(bool all);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::vector<int32_t>
      tokens_;  // context_ tokens that have been shown, then those that are held back
  size_t context_ = 0;
  size_t shown_ = 0;  // bytes of the text of tokens_ that have been returned
};

}  // namespace ds
