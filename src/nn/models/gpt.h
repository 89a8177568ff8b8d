#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds {

// Pre-norm decoder after Radford et al., "Language models are unsupervised multitask learners"
// (2019), in f32. Inputs tokens and targets i32[n] with n <= bound: packed sequences of `seq`
// tokens, the last one may be shorter; target -100 is none. With config.documents, inputs begin and
// positions, and rows are documents (HfModel). Outputs: loss f32[], logits f32[n, vocab]. Weights ~
// normal(0.02), those of residual projections normal(0.02 / sqrt(2 layers)); the head is tied to
// wte. Dropout, when config.dropout > 0, follows the embeddings and each residual branch;
// config.layerdrop leaves whole layers out.
Graph build_gpt(const ModelConfig& config, int64_t bound, int64_t seq);

}  // namespace ds
