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

// Where a document ends in a token file.
struct DocumentEnd {
  int64_t end = 0;     // tokens before its end
  bool whole = false;  // each of its tokens is a target
};

// A sequence of token ids in a file (format in token_file.cpp), as a stream or as documents, of
// which some tokens may be marked as targets. Any number of threads and processes may read it.
//
// The file may be larger than memory. It is read on demand and not mapped: a mapped file that
// somebody cuts short ends the process with SIGBUS. What is read passes a window of a few blocks,
// and each block is compared with its checksum when it enters; so opening reads a header and a
// table, damage is found where it is used, and hash() still is one of the whole content.
class TokenFile : public TokenSource {
 public:
  // Whether opening takes the hash of all bytes, or of the header and the checksums of all blocks.
  enum class Read : uint8_t { on_demand, whole };

  TokenFile();
  // Throws DS_ERROR_NOT_FOUND, _IO, or _CORRUPT when header and size contradict each other.
  explicit TokenFile(const std::string& path, Read how = Read::on_demand);
  ~TokenFile() override;
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;

  int64_t size() const override { return count_; }
  int64_t vocab() const override { return vocab_; }
  int64_t largest() const {
    return largest_;
  }  // token of the file; -1: not known, of a file of version 1
  const std::string& corpus_hash() const {
    return corpus_hash_;
  }  // of the text the tokens come from
  const std::string& tokenizer_hash() const { return tokenizer_hash_; }  // kNoHash: not known
  const std::string& hash() const { return hash_; }                      // of the content
  const std::string& path() const override { return file_.path(); }
  bool marked() const { return marked_; }           // some tokens are no targets
  int64_t documents() const { return documents_; }  // 0: a stream
  std::vector<DocumentEnd> ends() const;            // of each document, in order
  void copy(int64_t begin, std::span<int32_t> out) const override;
  // Also which tokens are targets: 1 or 0 each.
  void copy(int64_t begin, std::span<int32_t> out, std::span<uint8_t> targets) const;
  // DS_ERROR_CORRUPT, or _NOT_FOUND, unless the path still leads to the content that was opened.
  // Looks at the file again only when the system says that it was touched or replaced.
  void check();

 private:
  struct Window;
  void read(void* data, size_t bytes, int64_t offset) const;
  void read_block(int64_t block, std::vector<char>& out) const;
  [[noreturn]] void cut_short(int64_t now) const;
  void read_file(void* data, size_t bytes, int64_t offset) const;

  File file_;
  FileState state_;  // before it was read
  std::string corpus_hash_, tokenizer_hash_, hash_;
  int64_t count_ = 0, vocab_ = 0, largest_ = -1, documents_ = 0;
  int64_t width_ = 1, begin_ = 0, bytes_ = 0;  // bytes of a token, of the header, of the whole file
  bool marked_ = false;
  Read read_ = Read::on_demand;
  std::vector<uint64_t> checks_;  // of the blocks behind the header; none: of version 1
  std::unique_ptr<Window> window_;
};

inline const std::string kNoHash = std::string(32, '0');

// Writes a token file piece by piece, in memory that does not grow with it but for 8 bytes a
// document and a block. The path is replaced when finish() returns, and the file is on disk then;
// before, nothing is there.
class TokenWriter {
 public:
  struct Options {
    int64_t vocab = 0;  // every token is below it
    std::string tokenizer_hash = kNoHash;
    bool documents = false, marked = false;
  };
  TokenWriter(const std::string& path, Options options);
  ~TokenWriter();
  TokenWriter(const TokenWriter&) = delete;
  TokenWriter& operator=(const TokenWriter&) = delete;

  // One document, or the next tokens of a stream. targets: of marked files, 1 or 0 for each token.
  void add(std::span<const int32_t> tokens, std::span<const uint8_t> targets = {});
  int64_t size() const { return count_; }
  int64_t documents() const { return static_cast<int64_t>(ends_.size()); }
  void finish(std::string_view corpus_hash);  // 32 digits

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

// Replaces path by a file of a stream of these tokens, all in [0, vocab), which is on disk when it
// returns.
void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab,
                      std::string_view corpus_hash, const std::string& tokenizer_hash = kNoHash);

}  // namespace ds
