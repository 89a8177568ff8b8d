#pragma once
#include <string>
#include <string_view>

#include "text/tokenizers/regex.h"
#include "text/tokenizers/section.h"
#include "text/tokenizers/traced_text.h"

namespace ds::text {

// Reads the expression of a "pattern" object, {"String": literal} or {"Regex": expression}.
Regex read_pattern(Section& section);

// Returns the text with every match replaced by `by`. Ends early once the result has more than
// `most` bytes.
TracedText replace_all(const Regex& pattern, const TracedText& text, std::string_view by,
                       size_t most = std::string::npos);

}  // namespace ds::text
