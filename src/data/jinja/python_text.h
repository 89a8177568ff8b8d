#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ds::jinja {

// What Python's str does, on UTF-8 text. Offsets and counts are of bytes unless a name says
// otherwise.

bool is_space(char32_t point);  // of str.isspace
enum class Side { left, right, both };
// Without the characters at its ends that `chars` has; without spaces when chars is nullptr.
std::string_view strip(std::string_view text, Side side, const std::string* chars = nullptr);
// Offset of the first `part` from `from` on; npos: none. Linear in the size of the text.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
std::string replace_text(std::string_view text, std::string_view from, std::string_view to,
                         int64_t most);
// Parts between spaces, or between `separator`s; at most `most` cuts unless it is negative.
std::vector<std::string> split_spaces(std::string_view text, int64_t most);
std::vector<std::string> split_text(std::string_view text, std::string_view separator,
                                    int64_t most);
std::vector<std::string> split_text_right(std::string_view text, std::string_view separator,
                                          int64_t most);
std::vector<std::string> split_lines(std::string_view text);
// Throw Fault for the few characters that become several, or that depend on their neighbours.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);
std::string repr_text(std::string_view text);
int64_t length(std::string_view text);  // in characters
// Byte offset of character `index` of at most length(text).
size_t offset_of(std::string_view text, int64_t index);

}  // namespace ds::jinja
