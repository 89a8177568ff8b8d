#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace ds {

// A sequence of token ids that is read in pieces, wherever it is stored.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // Returns the number of tokens.
  virtual int64_t size() const = 0;
  // Returns the size of the vocabulary; every token is below it.
  virtual int64_t vocab() const = 0;
  // Returns the path of the first file, for messages.
  virtual const std::string& path() const = 0;
  // Copies tokens [begin, begin + out.size()) into out. Throws outside [0, size()), and
  // DS_ERROR_CORRUPT if the bytes read are damaged or missing.
  virtual void copy(int64_t begin, std::span<int32_t> out) const = 0;
};

}  // namespace ds
