#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ds {

// Bytes of the UTF-8 sequence at the start of text: 1 to 4, or 0 when it is not one (RFC 3629: no
// overlong forms, no surrogates, nothing above U+10FFFF; also 0 for an empty text).
size_t utf8_sequence(std::string_view text);
bool is_utf8(std::string_view text);
// The text with U+FFFD for every maximal part of an ill-formed sequence (Unicode 15, section 3.9).
std::string repair_utf8(std::string_view text);

// Unicode's control characters (general category Cc): U+0000 to U+001F, U+007F to U+009F.
constexpr bool is_control(char32_t point) {
  return point < 0x20 || (point >= 0x7f && point < 0xa0);
}

// UTF-8 text for a terminal, which obeys control characters: all but line breaks and tabs become
// \xNN.
std::string show_controls(std::string_view text);

// The code point of the sequence at the start of UTF-8 text, which is not empty.
char32_t utf8_first(std::string_view text);
// The last character of UTF-8 text, which is not empty.
std::string_view utf8_last(std::string_view text);
void utf8_append(std::string& text, char32_t code_point);  // below 0x110000 and no surrogate

}  // namespace ds
