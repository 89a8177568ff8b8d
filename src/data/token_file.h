#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_source.h"
#include "io/file.h"

namespace ds {

// The end of a document in a token file.
struct DocumentEnd {
  // Number of tokens before the end.
  int64_t end = 0;
  // True if each token of the document is a target.
  bool whole = false;
};

// A sequence of token ids in a file (token_file.cpp has the format), as a stream or as documents,
// in which some tokens may be marked as targets. Any number of threads and processes may read it.
//
// The file may be larger than memory. It is read on demand and not mapped, since a mapped file that
// somebody cuts short ends the process with SIGBUS. Reads pass through a window of a few blocks,
// and each block of a file of version 2 is compared with its checksum when it enters. So opening on
// demand reads only a header and a table, damage is found where it is used, and hash() still covers
// the whole content.
class TokenFile : public TokenSource {
 public:
  // The bytes that are hashed on opening: the header and the checksums of all blocks (on_demand),
  // or the whole file (whole).
  enum class Read : uint8_t { on_demand, whole };

  TokenFile();
  // Throws DS_ERROR_NOT_FOUND, DS_ERROR_IO, DS_ERROR_UNSUPPORTED for an unknown version, or
  // DS_ERROR_CORRUPT if the header contradicts the size of the file or the checksums.
  explicit TokenFile(const std::string& path, Read how = Read::on_demand);
  ~TokenFile() override;
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;

  int64_t size() const override { return count_; }
  int64_t vocab() const override { return vocab_; }
  // Returns the largest token of the file; -1 if it is not known, as in a file of version 1.
  int64_t largest() const { return largest_; }
  // Returns the hash of the text from which the tokens come.
  const std::string& corpus_hash() const { return corpus_hash_; }
  // Returns the hash of the tokenizer, or kNoHash if it is not known.
  const std::string& tokenizer_hash() const { return tokenizer_hash_; }
  // Returns the hash of the content.
  const std::string& hash() const { return hash_; }
  const std::string& path() const override { return file_.path(); }
  // Returns whether the file marks which tokens are targets. If it does not, all are.
  bool marked() const { return marked_; }
  // Returns the number of documents; 0 for a stream.
  int64_t documents() const { return documents_; }
  // Returns the end of each document, in order.
  std::vector<DocumentEnd> ends() const;
  void copy(int64_t begin, std::span<int32_t> out) const override;
  // Copies like the function above, and sets `targets` to 1 for a token that is a target and to 0
  // for any other token.
  void copy(int64_t begin, std::span<int32_t> out, std::span<uint8_t> targets) const;
  // Throws DS_ERROR_CORRUPT or DS_ERROR_NOT_FOUND unless the path still leads to the content that
  // was opened. Reads the file again only if the system says that it was touched or replaced.
  void check();

 private:
  struct Window;
  void read(void* data, size_t bytes, int64_t offset) const;
  void read_block(int64_t block, std::vector<char>& out) const;
  [[noreturn]] void cut_short(int64_t now) const;
  void read_file(void* data, size_t bytes, int64_t offset) const;

  File file_;
  // The state of the file before it was read.
  FileState state_;
  std::string corpus_hash_, tokenizer_hash_, hash_;
  int64_t count_ = 0, vocab_ = 0, largest_ = -1, documents_ = 0;
  // Bytes of a token, of the header, and of the whole file.
  int64_t width_ = 1, begin_ = 0, bytes_ = 0;
  bool marked_ = false;
  Read read_ = Read::on_demand;
  // Checksums of the blocks after the header. Empty for version 1.
  std::vector<uint64_t> checks_;
  std::unique_ptr<Window> window_;
};

// The value of a hash that is not known.
inline const std::string kNoHash = std::string(32, '0');

// A writer of a token file, piece by piece. Its memory does not grow with the file except for 8
// bytes for each document and block. The path is unchanged until finish() returns; then the file is
// at the path and on disk.
class TokenWriter {
 public:
  struct Options {
    // The size of the vocabulary; every token must be below it.
    int64_t vocab = 0;
    std::string tokenizer_hash = kNoHash;
    // Whether each add() is a document, and whether the file marks which tokens are targets.
    bool documents = false, marked = false;
  };
  TokenWriter(const std::string& path, Options options);
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  // Adds one document, or the next tokens of a stream. For marked files, `targets` has 1 or 0 for
  // each token.
  void add(std::span<const int32_t> tokens, std::span<const uint8_t> targets = {});
  int64_t size() const { return count_; }
  int64_t documents() const { return static_cast<int64_t>(ends_.size()); }
  // Completes the file. The hash must have 32 digits.
  void finish(std::string_view corpus_hash);

 private:
  void put(const void* data, size_t bytes);
  void flush();

  std::string path_, unfinished_;
  Options options_;
  File file_;
  std::vector<char> block_;
  std::vector<uint64_t> checks_, ends_;
  int64_t count_ = 0, largest_ = -1, width_ = 1, at_ = 0;
};

// Replaces the path by a file with a stream of these tokens, all in [0, vocab). The file is on disk
// when the function returns.
void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab,
                      std::string_view corpus_hash, const std::string& tokenizer_hash = kNoHash);

}  // namespace ds
