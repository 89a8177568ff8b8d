#pragma once
#include <cstddef>
#include <string_view>

namespace ds {

// Bytes of the UTF-8 sequence at the start of text: 1 to 4, or 0 when it is not one (RFC 3629: no overlong
// forms, no surrogates, nothing above U+10FFFF; also 0 for an empty text).
size_t utf8_sequence(std::string_view text);
bool is_utf8(std::string_view text);

}  // namespace ds
