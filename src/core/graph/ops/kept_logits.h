#pragma once
#include "core/base/attrs.h"

namespace ds {

// Attribute `kept` of linear_cross_entropy: the logits of all words are a result.
inline bool keeps_logits(const Attrs& attrs) { return attrs.integer_or("kept", 0) != 0; }

}  // namespace ds
