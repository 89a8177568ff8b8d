#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "text/tokenizers/section.h"
#include "text/tokenizers/traced_text.h"

namespace ds::text {

// One step of the "normalizer" of a tokenizer.json: UTF-8 text to UTF-8 text. The result is traced
// if the text is.
class Normalizer {
 public:
  // `where` is file and key, for messages.
  explicit Normalizer(std::string where) : where_(std::move(where)) {}
  virtual ~Normalizer() = default;
  // Returns the normalized text. Throws DS_ERROR_UNSUPPORTED, naming the step, if a text grows
  // beyond 64 times its bytes + 1 MiB.
  TracedText apply(TracedText text) const {
    size_t most = 64 * text.text.size() + (1 << 20);
    return apply(std::move(text), most);
  }
  // Throws DS_ERROR_UNSUPPORTED if the result has more than `most` bytes.
  TracedText apply(TracedText text, size_t most) const;

 private:
  // A result may be cut off once it has more than `most` bytes.
  virtual TracedText step(TracedText text, size_t most) const = 0;

  std::string where_;
};

// Returns the normalizer that the JSON describes; nullptr for JSON null. Types: Sequence NFC NFD
// NFKC NFKD Prepend Replace Strip Lowercase StripAccents BertNormalizer.
std::unique_ptr<const Normalizer> read_normalizer(const Json* json, const std::string& where);

}  // namespace ds::text
