#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds {

// Builds a pre-norm decoder after Radford et al., "Language models are unsupervised multitask
// learners" (2019), in f32. The inputs are tokens and targets, i32[n] with n <= bound: concatenated
// sequences of `seq` tokens, the last one possibly shorter. A target of -100 is ignored. With
// config.documents there are also the inputs begin and positions, and rows are documents (HfModel).
// The outputs are loss f32[] and logits f32[n, vocab]. Initial weights are normal(0.02), those of
// residual projections normal(0.02 / sqrt(2 layers)); the head is tied to wte. Dropout, if
// config.dropout > 0, follows the embeddings and each residual branch; config.layerdrop skips
// entire layers.
Graph build_gpt(const ModelConfig& config, int64_t bound, int64_t seq);

}  // namespace ds
