#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizers/range.h"

namespace ds::text {

// A tokenizer, which turns text into token ids and back. It is immutable, so any number of threads
// may share it. docs/reference/tokenizers.md describes the kinds and their files.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Returns "bytes" or the path of the file from which the tokenizer was read.
  virtual const std::string& name() const = 0;
  // Returns the size of the vocabulary: every id is in [0, vocab).
  virtual int64_t vocab() const = 0;

  // Returns the ids of a text. Special tokens that the text spells out are recognized. With
  // `special`, the tokens that the file puts around a text are added, for example a
  // beginning-of-text token. Each maximal part that is not UTF-8 is encoded as U+FFFD; only "bytes"
  // keeps such bytes.
  virtual std::vector<int32_t> encode(std::string_view text, bool special = true) const = 0;

  // The tokens of a text and, for each token, the range of the text that it represents. Ranges are
  // whole characters, even if a token is only some bytes of one; a token without text has an empty
  // range. Ranges of neighbouring tokens may overlap. If the text is not UTF-8, ranges refer to
  // repair_utf8(text).
  struct Traced {
    std::vector<int32_t> tokens;
    std::vector<Range> sources;
  };
  // Encodes like encode(text, false), and returns the ranges, too.
  virtual Traced encode_traced(std::string_view text) const = 0;

  // Returns the text of ids, without special tokens if `skip_special`. An id without a token, which
  // models with a padded vocabulary may generate, becomes U+FFFD. The text is UTF-8; with "bytes"
  // it may be any bytes.
  virtual std::string decode(std::span<const int32_t> tokens, bool skip_special = true) const = 0;

  // Returns whether the text of `token` may change with the token that follows: bytes that are
  // spelled by one token each (byte fallback) form a character only together.
  virtual bool joins_next(int32_t token) const { return static_cast<void>(token), false; }

  // Returns the token that ends a text, if the files name one.
  virtual std::optional<int32_t> end_of_text() const = 0;

  // The tokens that encode() with `special` puts around a text.
  struct Frame {
    std::vector<int32_t> before, after;
  };
  virtual Frame frame() const = 0;
  // Returns the token that replaces a hidden one in masked language models, if the files name one.
  virtual std::optional<int32_t> mask_token() const { return std::nullopt; }
  // The special tokens that the files name, as a chat template sees them: name ("bos_token", ...)
  // and spelling.
  using Names = std::vector<std::pair<std::string, std::string>>;
  virtual Names names() const { return {}; }
  // Returns whether a token is not ordinary text: decode() may skip it, it ends a text, or it is
  // the mask token.
  virtual bool is_special(int32_t token) const = 0;
};

// Opens "bytes", a tokenizer.json, a sentencepiece .model, a GGUF file, or a folder with
// tokenizer.json, tokenizer.model, vocab.json and merges.txt, or vocab.txt. In a folder, the first
// of these that exists is read. Throws DS_ERROR_NOT_FOUND if none exists, DS_ERROR_CORRUPT or
// DS_ERROR_CONFIG for a damaged file, and DS_ERROR_UNSUPPORTED for a part that libds lacks;
// messages name the file and the key.
std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& name);

// A file of a tokenizer, and the name that a copy of it must have.
struct TokenizerFile {
  std::string path, name;
};
// Returns the files that open_tokenizer(name) and read_chat_templates(name) read; none for "bytes".
// A folder with copies of them, each under its `name`, which may begin with the name of an inner
// folder, is the same tokenizer. Throws like open_tokenizer if no file is found.
std::vector<TokenizerFile> tokenizer_files(const std::string& name);

// Returns xxh3-128 over the names and contents of tokenizer_files(name). Of config.json, only the
// tokenizer class that it selects is hashed. Token ids of tokenizers with different hashes must not
// be mixed.
std::string tokenizer_hash(const std::string& name);

}  // namespace ds::text
