#pragma once
#include <cstdint>

#include "core/base/attrs.h"

namespace ds {

// Some scalings of `rope` depend on the length of the text. All texts of up to `original` tokens
// have the same rotations. Longer texts share other rotations ("longrope" with `long_factors`), or
// their rotations differ with each length ("dynamic"). Keys that were rotated for one length cannot
// be used in a text with other rotations.

// Returns whether rotations depend on the length of the text.
bool depends_on_length(const Attrs& rope);
// Returns whether texts of these two lengths have the same rotations.
bool same_rotations(const Attrs& rope, int64_t length, int64_t other);

}  // namespace ds
