#include "core/graph/ops/rope_factors.h"

#include <charconv>

#include "core/base/error.h"

namespace ds {

int64_t read_rope_factors(std::string_view text, std::span<double> factors) {
  size_t count = 0;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    double value = 0;
    auto [next, code] = std::from_chars(at, end, value);
    bool good = code == std::errc() && (next == end || (*next == ' ' && next + 1 < end));
    require(good, "rope: attribute 'factors' must be numbers with a space between two, got '{}'", text);
    if (count < factors.size()) factors[count] = value;
    ++count;
    at = next == end ? end : next + 1;
  }
  return static_cast<int64_t>(count);
}

}  // namespace ds
