#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/pieces.h"
#include "data/tokenizers/regex.h"

namespace ds {

// What becomes of the matches of a pattern when a text is cut at them. contiguous: a run of
// adjacent matches is one piece.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// Appends the pieces of text's range, cut by the pattern. invert: what lies between matches counts
// as match.
void split(const Regex& pattern, SplitBehavior behavior, bool invert, std::string_view text,
           Range range, std::vector<Range>& out);

}  // namespace ds
