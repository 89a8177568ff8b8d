#include "core/base/bytes_text.h"

#include <fmt/core.h>

#include <cstddef>
#include <iterator>

namespace ds {

// From 9.995 and from 99.95 on, rounding adds a digit before the point, so one decimal fewer is
// needed.
std::string three_digits(double x) {
  return fmt::format("{:.{}f}", x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0);
}

std::string bytes_text(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr const char* units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double x = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // From 999.5 on, three digits would round to 1000.
  while (x >= 999.5 && unit + 1 < std::size(units)) {
    x /= 1024;
    ++unit;
  }
  return three_digits(x) + " " + units[unit];
}

}  // namespace ds
