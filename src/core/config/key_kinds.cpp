#include "core/config/key_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/ascii.h"
#include "core/base/error.h"

namespace ds {

std::string choose(const std::string& path, const Json& given,
                   const std::vector<std::string>& supported,
                   const std::vector<std::string>& foreign) {
  std::string name;
  read_value(path, given, {}, name);
  for (const std::string& one : supported) {
    if (ascii_lower(one) == ascii_lower(name)) return one;
  }
  for (const std::string& one : foreign) {
    if (ascii_lower(one) == ascii_lower(name)) {
      raise(DS_ERROR_CONFIG, "{}: {} is unsupported by this version; supported: {}", KeyName(path),
            one, fmt::join(supported, ", "));
    }
  }
  raise(DS_ERROR_CONFIG, "{}: \"{}\" is unknown; supported: {}", KeyName(path), name,
        fmt::join(supported, ", "));
}

}  // namespace ds
