#pragma once
#include "core/base/attrs.h"

namespace ds {

// Returns whether attribute `kept` of linear_cross_entropy is set. The logits of all words are then
// a result of the operation.
inline bool keeps_logits(const Attrs& attrs) { return attrs.integer_or("kept", 0) != 0; }

}  // namespace ds
