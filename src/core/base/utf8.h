#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ds {

// Returns the length in bytes of the UTF-8 sequence at the start of text: 1 to 4, or 0 if the text
// is empty or does not begin with a valid sequence (RFC 3629: no overlong forms, no surrogates,
// nothing above U+10FFFF).
size_t utf8_sequence(std::string_view text);
bool is_utf8(std::string_view text);
// Returns the text with U+FFFD for every maximal subpart of an ill-formed sequence (Unicode 15,
// section 3.9).
std::string repair_utf8(std::string_view text);

// Returns whether a code point is a control character of Unicode (general category Cc): U+0000 to
// U+001F, U+007F to U+009F.
constexpr bool is_control(char32_t point) {
  return point < 0x20 || (point >= 0x7f && point < 0xa0);
}

// Returns a text that is safe to print on a terminal: control characters other than \n and \t
// become \xNN.
std::string show_controls(std::string_view text);

// Returns the code point of the sequence at the start of a UTF-8 text that is not empty.
char32_t utf8_first(std::string_view text);
// Returns the last character of a UTF-8 text that is not empty.
std::string_view utf8_last(std::string_view text);
// Appends a code point below 0x110000 that is not a surrogate.
void utf8_append(std::string& text, char32_t code_point);

}  // namespace ds
