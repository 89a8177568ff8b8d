#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/pieces.h"
#include "text/tokenizers/regex.h"

namespace ds::text {

// The treatment of the matches of a pattern at which a text is cut. contiguous: a run of adjacent
// matches becomes one piece.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Appends the pieces of a range of the text, cut by the pattern. With `invert`, the stretches
// between matches are treated as the matches.
void split(const Regex& pattern, SplitBehavior behavior, bool invert, std::string_view text,
           Range range, std::vector<Range>& out);

}  // namespace ds::text
