#pragma once
#include <optional>
#include <string_view>

#include "text/tokenizers/traced_text.h"

namespace ds::text {

// A normalization form of Unicode Standard Annex 15.
struct UnicodeForm {
  bool composed = false, compatible = false;
};
// Reads NFC, NFD, NFKC or NFKD.
std::optional<UnicodeForm> unicode_form(std::string_view name);

// Returns UTF-8 text in that form. Traced characters have the origin that `tokenizers` gives them:
// each replaces one character of the text, in order. If several become one, the first is the
// origin; if one becomes several, it is the origin of all.
TracedText to_unicode_form(TracedText text, UnicodeForm form);

}  // namespace ds::text
