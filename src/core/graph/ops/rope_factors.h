#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/attrs.h"

namespace ds {

// The largest number of pairs of columns that can have factors.
inline constexpr int64_t kMostRopeFactors = 512;

// Reads attribute `name` of `rope`, such as "1 1.5 2", into `factors` and returns how many numbers
// the text has. Numbers beyond the end of `factors` are counted but not stored. Throws if the text
// has anything but numbers with a blank between two.
int64_t read_rope_factors(const Attrs& rope, std::string_view name, std::span<double> factors);

}  // namespace ds
