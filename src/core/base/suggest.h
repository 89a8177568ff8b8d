#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ds {

// Letters that are wrong, missing, too many, or swapped with their neighbour (optimal string
// alignment).
size_t edit_distance(std::string_view a, std::string_view b);

// The same where it is below `limit`, else `limit`. A distance is at least the difference of the
// lengths, so a word of megabytes costs nothing.
size_t edit_distance_below(std::string_view a, std::string_view b, size_t limit);

// One more than the edits by which a word may miss the name that it was meant to be.
size_t suggestion_limit(std::string_view word);

// Nearest of `names` by edit distance, "" if none is near: for "did you mean" in every message.
std::string suggest(std::string_view word, std::span<const std::string> names);
// "; did you mean 'gelu'?", or "" when no name is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> names);

}  // namespace ds
