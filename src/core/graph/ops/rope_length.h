#pragma once
#include <cstdint>

#include "core/base/attrs.h"

namespace ds {

// Some scalings of `rope` look at the length of the text: every text of up to `original` tokens has
// the same rotations. Longer ones have others, which they share ("longrope" with `long_factors`),
// or each length has its own ("dynamic"). Keys that were turned for one length are of no use to a
// text with other rotations.
bool depends_on_length(const Attrs& rope);
bool same_rotations(const Attrs& rope, int64_t length, int64_t other);

}  // namespace ds
