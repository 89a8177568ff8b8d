#include "core/config/key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/ascii.h"
#include "core/config/refuse.h"

namespace ds {

Key& Key::also(const char* name) {
  other = name;
  return *this;
}

Key& Key::shown(const char* text) {
  default_text = text;
  return *this;
}

// A key that does not apply is printed as null and thereby left out of every report.
Key& Key::when(std::function<bool(const Config&)> applies) {
  get = [applies = std::move(applies), inner = std::move(get)](const Config& c) {
    return applies(c) ? inner(c) : Json();
  };
  return *this;
}

Key& Key::then(std::function<void(Config&)> part) {
  set = [part = std::move(part), inner = std::move(set)](Config& c, const Json& given) {
    inner(c, given);
    part(c);
  };
  return *this;
}

// A caller may restrict the returned key with when(), which replaces only `get`. The copy in
// `value` still returns the value if the key does not apply.
Key& add_key(KeyList& keys, Key key) {
  static const auto& nothing = *new Config;
  key.value = key.get;
  key.fallback = key.get(nothing);
  return keys.emplace_back(std::move(key));
}

std::string choose(const std::string& path, const Json& given, const KeyWords& supported,
                   const KeyWords& foreign) {
  const std::string name = read_value<std::string>(path, given);
  for (const std::string& one : supported) {
    if (ascii_lower(one) == ascii_lower(name)) return one;
  }
  for (const std::string& one : foreign) {
    if (ascii_lower(one) == ascii_lower(name)) {
      refuse(path, "{} is unsupported by this version; supported: {}", one,
             fmt::join(supported, ", "));
    }
  }
  refuse(path, "\"{}\" is unknown; supported: {}", name, fmt::join(supported, ", "));
}

}  // namespace ds
