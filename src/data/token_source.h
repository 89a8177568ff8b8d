#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace ds {

// A sequence of token ids that is read in pieces, wherever it is kept.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual int64_t size() const = 0;             // tokens
  virtual int64_t vocab() const = 0;            // every token is below it
  virtual const std::string& path() const = 0;  // of the (first) file, for messages
  // Tokens [begin, begin + out.size()) into out; throws outside [0, size()], and DS_ERROR_CORRUPT
  // when the file has changed since it was opened.
  virtual void copy(int64_t begin, std::span<int32_t> out) const = 0;
};

}  // namespace ds
