#pragma once
#include <cstdint>
#include <string_view>

namespace ds {

// Returns the size in bytes of the file that `gzip -9` produces from a text. It uses zlib's
// deflate, which may differ from gzip's own by a few bytes in a thousand.
int64_t gzip_bytes(std::string_view text);

}  // namespace ds
