#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ds {

// Text to token ids and back. "bytes" is the only one: token = byte, 256 of them.
class Tokenizer {
 public:
  explicit Tokenizer(std::string_view name);  // throws DS_ERROR_UNSUPPORTED, naming the known ones
  const std::string& name() const { return name_; }
  int64_t vocab() const { return 256; }
  std::vector<int32_t> encode(std::string_view text) const;
  std::string decode(std::span<const int32_t> tokens) const;  // throws on a token outside the vocabulary

 private:
  std::string name_;
};

}  // namespace ds
