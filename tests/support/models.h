#pragma once
#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds::test {

// Returns `layers` identical square layers of `width` (linear with bias, and gelu between them)
// with a mean squared error. Inputs are x and target f32[n,width]; `bound` is the largest n.
Graph make_mlp(int layers, int64_t width, int64_t bound);

// Returns a GPT-like graph written by hand: embedding, dropout, layer norm, attention, mlp, tied
// head and cross-entropy. Inputs are tokens and targets i32[n]. If `tied` is false, the head has
// its own weight.
Graph make_tiny_gpt(int layers, int64_t width, int64_t heads, int64_t vocab, int64_t seq,
                    int64_t bound, double dropout, bool tied = true);

// Returns a configuration with AdamW, clipping 1, micro-batch 1 and the given stage, on the device
// that DS_TEST_DEVICE names, or "cpu".
Config make_config(int stage, int64_t accumulation, int world);

}  // namespace ds::test
