#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "data/tokenizers/section.h"
#include "data/tokenizers/traced_text.h"

namespace ds {

// One step of a tokenizer.json's "normalizer": UTF-8 text to UTF-8 text, traced if that is.
class Normalizer {
 public:
  explicit Normalizer(std::string where)
      : where_(std::move(where)) {}  // file and key, for messages
  virtual ~Normalizer() = default;
  // Throws DS_ERROR_UNSUPPORTED, naming the step, for a text that grows beyond 64 times its bytes +
  // 1 MiB.
  TracedText apply(TracedText text) const {
    size_t most = 64 * text.text.size() + (1 << 20);
    return apply(std::move(text), most);
  }
  TracedText apply(TracedText text, size_t most) const;

 private:
  // A result of more than `most` bytes may be cut off behind them.
  virtual TracedText step(TracedText text, size_t most) const = 0;

  std::string where_;
};

// nullptr for JSON null. Types: Sequence NFC NFD NFKC NFKD Prepend Replace Strip Lowercase
// StripAccents BertNormalizer.
std::unique_ptr<const Normalizer> read_normalizer(const Json* json, const std::string& where);

}  // namespace ds
