#include "tools/options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/ops.h"

namespace ds {

const std::string& option_word(const std::string& key, const Json& value,
                               std::span<const std::string> allowed) {
  const std::string& text = value.string();
  if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  raise(DS_ERROR_CONFIG, "{}: expected one of {}, got \"{}\"", key, fmt::join(allowed, ", "), text);
}

int64_t option_integer(const std::string& key, const Json& value, int64_t low, int64_t high) {
  int64_t number = value.integer();
  if (number >= low && number <= high) return number;
  raise(DS_ERROR_CONFIG, "{}: must be {} to {}, got {}", key, low, high, number);
}

void unknown_option(const std::string& key, std::span<const std::string> keys) {
  std::string near = suggest(key, keys);
  raise(DS_ERROR_CONFIG, "{}: unknown key{}", key, near.empty() ? "" : "; did you mean " + near + "?");
}

}  // namespace ds
