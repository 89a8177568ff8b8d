#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds::text::jinja {

// The methods of Python's str on UTF-8 text. Offsets are in bytes unless a comment says otherwise.

// Returns whether str.isspace accepts the character.
bool is_space(char32_t point);
enum class Side { left, right, both };
// Removes the characters in `chars`, or spaces if it is nullptr, from one end or both.
std::string_view strip(std::string_view text, Side side, const std::string* chars = nullptr);
// Returns the offset of the first `part` from `from` on, or npos. Linear in the size of the text.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
// Replaces at most `most` occurrences, or all if it is negative.
std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         int64_t most);
// These functions split between spaces or at `separator`, with at most `most` cuts unless it is
// negative.
std::vector<std::string> split_spaces(std::string_view text, int64_t most);
std::vector<std::string> split_text(std::string_view text, std::string_view separator,
                                    int64_t most);
std::vector<std::string> split_text_right(std::string_view text, std::string_view separator,
                                          int64_t most);
// Splits at the ten characters that end a line in Python, and at \r\n.
std::vector<std::string> split_lines(std::string_view text);
// These functions change the case as Python does. They throw Fault for characters that may become
// several characters or depend on their neighbours.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);
// Return str.islower and str.isupper.
bool is_lower(std::string_view text);
bool is_upper(std::string_view text);
// Returns the text as Python's repr writes it, in quotes and with escapes.
std::string repr_text(std::string_view text);
// Returns the number of characters.
int64_t length(std::string_view text);
// Returns the byte offset of character `index`, which must be at most length(text).
size_t offset_of(std::string_view text, int64_t index);

}  // namespace ds::text::jinja
