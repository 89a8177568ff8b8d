#pragma once
#include <string>
#include <string_view>

#include "data/tokenizers/regex.h"
#include "data/tokenizers/section.h"
#include "data/tokenizers/traced_text.h"

namespace ds {

// The expression of a "pattern" object, {"String": literal} or {"Regex": expression}.
Regex read_pattern(Section& section);

// The text with `by` for each match.
// Ends early once the result has more than `most` bytes.
TracedText replace_all(const Regex& pattern, const TracedText& text, std::string_view by,
                       size_t most = std::string::npos);

}  // namespace ds
