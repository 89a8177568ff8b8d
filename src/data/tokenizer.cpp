#include "data/tokenizer.h"

#include "core/base/error.h"

namespace ds {

Tokenizer::Tokenizer(std::string_view name) : name_(name) {
  if (name != "bytes") raise(DS_ERROR_UNSUPPORTED, "tokenizer must be one of: bytes; got '{}'", name);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (char c : text) tokens.push_back(static_cast<uint8_t>(c));
  return tokens;
}

std::string Tokenizer::decode(std::span<const int32_t> tokens) const {
  std::string text;
  text.reserve(tokens.size());
  for (int32_t token : tokens) {
    require(token >= 0 && token < vocab(), "token must be from 0 to {}, got {}", vocab() - 1, token);
    text.push_back(static_cast<char>(token));
  }
  return text;
}

}  // namespace ds
