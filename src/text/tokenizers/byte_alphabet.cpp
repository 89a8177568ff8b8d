#include "text/tokenizers/byte_alphabet.h"

#include "core/base/utf8.h"

namespace ds::text {

// Printable Latin-1 characters represent themselves; the soft hyphen (0xad) is not printable.
ByteAlphabet::ByteAlphabet() {
  byte_.fill(-1);
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    bool itself = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    char32_t point = itself ? byte : next++;
    byte_[point] = static_cast<int16_t>(byte);
    utf8_append(spelling_[byte], point);
  }
}

std::string ByteAlphabet::spell(std::string_view bytes) const {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (char c : bytes) out += spelling_[static_cast<uint8_t>(c)];
  return out;
}

// Code points at or above the table's size are outside the alphabet, too.
std::optional<std::string> ByteAlphabet::bytes(std::string_view spelling) const {
  std::string out;
  while (!spelling.empty()) {
    char32_t point = utf8_first(spelling);
    if (point >= byte_.size() || byte_[point] < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte_[point]));
    spelling.remove_prefix(utf8_sequence(spelling));
  }
  return out;
}

}  // namespace ds::text
