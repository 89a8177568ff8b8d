#include "core/base/name.h"

#include "core/base/error.h"
#include "core/base/utf8.h"

namespace ds {
namespace {

// U+0000 to U+001F, U+007F, U+0080 to U+009F.
bool has_control(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    auto byte = static_cast<unsigned char>(name[i]);
    if (byte < 0x20 || byte == 0x7f) return true;
    if (byte == 0xc2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xa0) return true;
  }
  return false;
}

}  // namespace

void require_name(std::string_view kind, std::string_view name, size_t most) {
  require(!name.empty(), "{} name must not be empty", kind);
  require(name.size() <= most, "{} name must have at most {} bytes, got {}", kind, most, name.size());
  require(is_utf8(name), "{} name must be UTF-8, got '{}'", kind, name);
  require(!has_control(name), "{} name must be without control characters, got '{}'", kind, name);
  bool legal = name.find_first_of(" %{}=;\"") == std::string_view::npos;
  require(legal, "{} name must be without blanks and any of %{{}}=;\", got '{}'", kind, name);
  require(name != "__metadata__", "{} name must not be '{}', which safetensors files reserve", kind, name);
}

}  // namespace ds
