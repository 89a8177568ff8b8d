#include "core/base/name.h"

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/utf8.h"

namespace ds {
namespace {

// Returns whether a name, which must be UTF-8, contains a control character.
bool has_control(std::string_view name) {
  for (; !name.empty(); name.remove_prefix(utf8_sequence(name))) {
    if (is_control(utf8_first(name))) return true;
  }
  return false;
}

}  // namespace

void require_name(std::string_view kind, std::string_view name, size_t most) {
  require(!name.empty(), "{} name must not be empty", kind);
  require(name.size() <= most, "{} name must have at most {} bytes, got {}", kind, most,
          name.size());
  require(is_utf8(name), "{} name must be UTF-8, got '{}'", kind, name);
  require(!has_control(name), "{} name must not contain control characters, got '{}'", kind, name);
  // These characters delimit names in the text forms of graphs and programs.
  bool legal = name.find_first_of(" %{}=;\"") == std::string_view::npos;
  require(legal, "{} name must not contain blanks or any of %{{}}=;\", got '{}'", kind, name);
  require(name != "__metadata__", "{} name must not be '{}', which safetensors files reserve", kind,
          name);
}

// Dots separate the parts of a name. The scope ends with the first part that begins with a digit;
// if there is no such part, the scope is the name's first part.
Scope scope_of(const std::string& name) {
  size_t begin = 0;
  while (begin < name.size()) {
    size_t end = name.find('.', begin);
    if (end == std::string::npos) end = name.size();
    if (is_ascii_digit(name[begin])) return {name.substr(0, end), true};
    begin = end + 1;
  }
  return {name.substr(0, name.find('.')), false};
}

}  // namespace ds
