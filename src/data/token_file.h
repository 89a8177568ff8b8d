#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ds {

// A sequence of token ids in a file, mapped read-only: 64 bytes of header (format in token_file.cpp), then
// tokens of 1, 2 or 4 bytes, the narrowest that holds the vocabulary. Any number of threads and processes
// may read it; pages come in on demand.
class TokenFile {
 public:
  TokenFile() = default;
  // Throws DS_ERROR_NOT_FOUND, _IO, or _CORRUPT when header and size contradict each other.
  explicit TokenFile(const std::string& path);
  ~TokenFile();
  TokenFile(TokenFile&& other) noexcept;
  TokenFile& operator=(TokenFile&& other) noexcept;

  int64_t size() const { return count_; }  // tokens
  int64_t vocab() const { return vocab_; }
  const std::string& corpus_hash() const { return corpus_hash_; }  // of the text the tokens come from
  const std::string& path() const { return path_; }
  // Tokens [begin, begin + out.size()) into out; throws outside [0, size()].
  void copy(int64_t begin, std::span<int32_t> out) const;

 private:
  std::string path_, corpus_hash_;
  const uint8_t* map_ = nullptr;
  size_t map_bytes_ = 0;
  int64_t count_ = 0, vocab_ = 0;
  int64_t width_ = 1;  // bytes of a token
};

// Replaces path by a file of these tokens, all in [0, vocab). corpus_hash: 32 digits.
void write_token_file(const std::string& path, std::span<const int32_t> tokens, int64_t vocab,
                      std::string_view corpus_hash);

}  // namespace ds
