#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/file.h"

namespace ds {

// A sequence of token ids in a file: 64 bytes of header (format in token_file.cpp), then tokens of 1, 2 or 4
// bytes, the narrowest that holds the vocabulary. Any number of threads and processes may read it. It is read
// and not mapped: a mapped file that somebody cuts short ends the process with SIGBUS.
class TokenFile {
 public:
  TokenFile() = default;
  // Reads the whole file once for its hash. Throws DS_ERROR_NOT_FOUND, _IO, or _CORRUPT when header and size
  // contradict each other.
  explicit TokenFile(const std::string& path);

  int64_t size() const { return count_; }  // tokens
  int64_t vocab() const { return vocab_; }
  const std::string& corpus_hash() const { return corpus_hash_; }  // of the text the tokens come from
  const std::string& hash() const { return hash_; }                // of all bytes of the file, xxh3-128
  const std::string& path() const { return file_.path(); }
  // Tokens [begin, begin + out.size()) into out; throws outside [0, size()], and DS_ERROR_CORRUPT when the
  // file has been cut short meanwhile.
  void copy(int64_t begin, std::span<int32_t> out) const;
  // DS_ERROR_CORRUPT, or _NOT_FOUND, unless the path still leads to the content that was opened. Reads the
  // file again only when the system says that it was touched or replaced.
  void check();

 private:
  void read(void* data, size_t bytes, int64_t offset) const;

  File file_;
  FileState state_;  // before it was read
  std::string corpus_hash_, hash_;
  int64_t count_ = 0, vocab_ = 0;
  int64_t width_ = 1;  // bytes of a token
};

// Replaces path by a file of these tokens, all in [0, vocab), which is on disk when it returns. corpus_hash:
// 32 digits.
void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab,
                      std::string_view corpus_hash);

}  // namespace ds
