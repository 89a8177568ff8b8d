#pragma once
#include <cstdint>
#include <string>

namespace ds {

// Numbers for people, independent of the locale.

// Returns x >= 0 with two decimals below 10, one below 100 and none from 100 on: "9.99", "12.0",
// "384".
std::string three_digits(double x);
// Returns a size in binary units: "0 B", "1.50 MiB", "12.0 GiB".
std::string bytes_text(int64_t bytes);

}  // namespace ds
