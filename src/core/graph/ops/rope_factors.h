#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/attrs.h"

namespace ds {

inline constexpr int64_t kMostRopeFactors = 512;

// Attribute `name` of `rope`, "1 1.5 2": how many numbers it holds, the first of which go to
// `factors`. Throws when the text holds anything else.
int64_t read_rope_factors(const Attrs& rope, std::string_view name, std::span<double> factors);

}  // namespace ds
