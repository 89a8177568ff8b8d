#include "core/base/error.h"

#include <algorithm>

#include "core/base/utf8.h"

namespace ds {
namespace {

constexpr std::string_view kCut = " ... ";

// Returns whether the byte continues a UTF-8 sequence.
bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Cuts out the middle of a long text, at character boundaries.
std::string shortened(const std::string& text) {
  size_t head = (kMostMessage - kCut.size()) / 2, tail = text.size() - head;
  while (head > 0 && continues(text[head])) --head;
  while (tail < text.size() && continues(text[tail])) ++tail;
  return text.substr(0, head).append(kCut).append(text, tail);
}

}  // namespace

// Where no valid character begins, one byte is escaped, so the result is valid UTF-8 for any input.
std::string one_line(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    auto c = static_cast<unsigned char>(text[0]);
    size_t length = utf8_sequence(text);
    if (length > 0 && is_control(utf8_first(text))) length = 0;
    if (length > 0) {
      out += text.substr(0, length);
    } else {
      out += c == '\n' ? "\\n" : fmt::format("\\x{:02x}", c);
    }
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return out.size() <= kMostMessage ? out : shortened(out);
}

const char* status_name(ds_status status) {
  switch (status) {
    case DS_OK:
      return "ok";
    case DS_ERROR_INVALID_ARGUMENT:
      return "invalid argument";
    case DS_ERROR_CONFIG:
      return "config";
    case DS_ERROR_NOT_FOUND:
      return "not found";
    case DS_ERROR_STATE:
      return "state";
    case DS_ERROR_UNSUPPORTED:
      return "unsupported";
    case DS_ERROR_OUT_OF_MEMORY:
      return "out of memory";
    case DS_ERROR_IO:
      return "io";
    case DS_ERROR_CORRUPT:
      return "corrupt";
    case DS_ERROR_COMM:
      return "comm";
    case DS_ERROR_NUMERIC:
      return "numeric";
    case DS_ERROR_POISONED:
      return "poisoned";
    case DS_ERROR_USER:
      return "user";
    case DS_ERROR_INTERNAL:
      return "internal";
    default:
      return "unknown";
  }
}

}  // namespace ds
