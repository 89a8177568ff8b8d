#include "core/graph/ops/rope_factors.h"

#include <charconv>
#include <string>
#include <system_error>

#include "core/base/error.h"

namespace ds {

// Each number must end at a blank or at the end of the text, and each blank must be followed by a
// number.
int64_t read_rope_factors(const Attrs& rope, std::string_view name, std::span<double> factors) {
  const std::string& text = rope.text(name);
  size_t count = 0;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    double value = 0;
    auto [next, code] = std::from_chars(at, end, value);
    bool good = code == std::errc() && (next == end || (*next == ' ' && next + 1 < end));
    require(good, "rope: attribute '{}' must be numbers that are separated by spaces, got '{}'",
            name, text);
    if (count < factors.size()) factors[count] = value;
    ++count;
    at = next == end ? end : next + 1;
  }
  return static_cast<int64_t>(count);
}

}  // namespace ds
