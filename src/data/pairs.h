#pragma once
#include <array>
#include <string>

namespace ds {

// Returns the two texts of a pair, the chosen one first, each as a line of "prompt" and
// "completion". The line has "chosen" and "rejected", both texts or both lists of messages, and
// usually "prompt". Without a prompt of their kind, their common beginning is the prompt, as TRL
// finds it: for texts up to the first character that differs, without a space before it. Throws
// DS_ERROR_CONFIG, beginning with `where`, for a line that is not a pair, has no prompt, an empty
// completion or equal completions.
std::array<std::string, 2> pair_lines(const std::string& line, const std::string& where);

}  // namespace ds
