#pragma once
#include <cstdint>
#include <string>

namespace ds {

// Numbers for people, independent of the locale.
std::string three_digits(double x);     // three significant digits
std::string bytes_text(int64_t bytes);  // "0 B", "1.50 MiB", "12.0 GiB"

}  // namespace ds
