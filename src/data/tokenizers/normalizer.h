#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizers/section.h"

namespace ds {

// One step of a tokenizer.json's "normalizer": UTF-8 text to UTF-8 text.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
};

// nullptr for JSON null. Types: Sequence NFC NFD NFKC NFKD Prepend Replace Strip.
std::unique_ptr<const Normalizer> read_normalizer(const Json* json, const std::string& where);

}  // namespace ds
