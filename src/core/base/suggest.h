#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace ds {

// Returns the number of letters that are wrong, missing, surplus, or swapped with their neighbour
// (optimal string alignment distance). The cost is O(|a| |b|).
size_t edit_distance(std::string_view a, std::string_view b);

// Returns min(edit_distance(a, b), limit). The difference of the lengths is a lower bound of the
// distance, so words whose lengths differ by at least `limit` are not compared.
size_t edit_distance_below(std::string_view a, std::string_view b, size_t limit);

// Returns one more than the largest number of edits by which a misspelt word may differ from the
// intended name.
size_t suggestion_limit(std::string_view word);

// Returns the nearest of `names` by edit distance, or "" if none is near.
std::string suggest(std::string_view word, std::span<const std::string> names);
// Returns "; did you mean 'gelu'?", or "" if no name is near.
std::string did_you_mean(std::string_view word, std::span<const std::string> names);

}  // namespace ds
