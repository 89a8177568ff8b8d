#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ds::text {

// GPT-2's alphabet of bytes: each byte is one printable character, so that tokens of any bytes can
// be written as text. Latin letters and signs represent themselves; the other 68 bytes are U+0100
// and following.
class ByteAlphabet {
 public:
  ByteAlphabet();
  const std::string& spelling(uint8_t byte) const { return spelling_[byte]; }
  // Returns the spelling of bytes, one character for each.
  std::string spell(std::string_view bytes) const;
  // Returns the bytes of a spelling, or nullopt if a character is outside the alphabet.
  std::optional<std::string> bytes(std::string_view spelling) const;

 private:
  std::array<std::string, 256> spelling_;
  // The byte of each code point; -1 for a character outside the alphabet.
  std::array<int16_t, 0x144> byte_;
};

}  // namespace ds::text
