#pragma once
#include <cstdint>
#include <vector>

#include "passes/rewrite.h"

namespace ds {

// Returns the rules that turn the product of an activation's result, a matrix, and another matrix
// into `glu`.
std::vector<RewriteRule> gate_rules();

// Returns the rule that turns `cross_entropy` of a `linear` without bias, whose weight is stored as
// [words, width], into `linear_cross_entropy`, if there are at least `fewest_words` words. Logits
// that are an output of the graph remain an output. With `kept`, the weight must not be frozen, and
// the backward part reads the logits of the forward part, whose rows are aligned; otherwise it
// computes them again.
std::vector<RewriteRule> head_rules(int64_t fewest_words, bool kept = false);

}  // namespace ds
