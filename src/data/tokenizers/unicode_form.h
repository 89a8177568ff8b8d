#pragma once
#include <optional>
#include <string_view>

#include "data/tokenizers/traced_text.h"

namespace ds {

// A normalization form of Unicode annex 15.
struct UnicodeForm {
  bool composed = false, compatible = false;
};
std::optional<UnicodeForm> unicode_form(std::string_view name);  // of NFC, NFD, NFKC, NFKD

// UTF-8 text in that form. Traced characters come from where `tokenizers` says: each takes the
// place of one of the text, in order; of several that become one the first counts, and of one that
// becomes several all come from it.
TracedText to_unicode_form(TracedText text, UnicodeForm form);

}  // namespace ds
