#include "launch/world_map.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace ds {
namespace {

// Removes the first code point of UTF-8 text and returns it, or U+FFFD for an invalid byte.
uint32_t next_code_point(std::string_view& text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  size_t length = byte(0) < 0x80       ? 1
                  : byte(0) >> 5 == 6  ? 2
                  : byte(0) >> 4 == 14 ? 3
                  : byte(0) >> 3 == 30 ? 4
                                       : 0;
  uint32_t value = length == 1 ? byte(0) : length == 0 ? 0 : byte(0) & (0xffu >> (length + 1));
  bool good = length != 0 && length <= text.size();
  for (size_t i = 1; good && i < length; ++i) {
    good = byte(i) >> 6 == 2;
    value = value << 6 | (byte(i) & 0x3f);
  }
  text.remove_prefix(good ? length : 1);
  return good ? value : 0xfffd;
}

// Returns the text as a JSON string in ASCII, as Python's json.dumps writes it. It assumes that
// names have no control characters, because json.dumps has shorter escapes for some of them.
std::string ascii_json(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    uint32_t c = next_code_point(text);
    if (c == '"' || c == '\\') {
      out += {'\\', static_cast<char>(c)};
    } else if (c >= 0x20 && c < 0x7f) {
      out += static_cast<char>(c);
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", c);
    } else {
      out +=
          fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + (c & 0x3ff));
    }
  }
  return out + '"';
}

// Returns the bytes in url-safe base64 with padding.
std::string base64(std::string_view bytes) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < count ? static_cast<uint8_t>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += j <= count ? kLetters[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

}  // namespace

// The JSON text is the same that Python's json.dumps writes, which DeepSpeed's launcher uses.
std::string encode_world_map(const Hosts& hosts) {
  std::string json = "{";
  for (const Host& host : hosts) {
    json += (json.size() > 1 ? ", " : "") + ascii_json(host.name) + ": [";
    for (size_t i = 0; i < host.slots.size(); ++i)
      json += fmt::format("{}{}", i ? ", " : "", host.slots[i]);
    json += ']';
  }
  return base64(json + '}');
}

}  // namespace ds
