#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/attrs.h"

namespace ds {

// The largest number of pairs of columns that can have factors.
inline constexpr int64_t kMostRopeFactors = 512;

// Reads attribute `name` of `rope`, such as "1 1.5 2", into `factors` and returns how many numbers
// the text holds; those beyond the span are counted but not stored. Throws if the text holds
// anything else.
int64_t read_rope_factors(const Attrs& rope, std::string_view name, std::span<double> factors);

}  // namespace ds
