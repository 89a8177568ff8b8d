#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ds {

// GPT-2's alphabet of bytes: each byte is one printable character (Latin letters and signs stand
// for themselves, the other 68 bytes are U+0100 and following), so that tokens of any bytes can be
// written as text.
class ByteAlphabet {
 public:
  ByteAlphabet();
  const std::string& spelling(uint8_t byte) const { return spelling_[byte]; }
  std::string spell(std::string_view bytes) const;
  // The bytes of a spelling; none when a character is outside the alphabet.
  std::optional<std::string> bytes(std::string_view spelling) const;

 private:
  std::array<std::string, 256> spelling_;
  std::array<int16_t, 0x144> byte_;  // by code point; -1: not in the alphabet
};

}  // namespace ds
