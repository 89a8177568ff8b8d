#pragma once
#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds::test {

// `layers` equal square layers of `width` (linear with bias and gelu) and a mean squared error;
// inputs x and target f32[n,width], bound rows.
Graph make_mlp(int layers, int64_t width, int64_t bound);

// One GPT-like block stack by hand: embedding, dropout, layer norm, attention, mlp, tied head,
// cross-entropy. Inputs tokens and targets i32[n]. Not tied: the head has a weight of its own.
Graph make_tiny_gpt(int layers, int64_t width, int64_t heads, int64_t vocab, int64_t seq,
                    int64_t bound, double dropout, bool tied = true);

// A configuration with AdamW, clipping 1, micro-batch 1 and the given stage.
// On the device that DS_TEST_DEVICE names; unset: cpu.
Config make_config(int stage, int64_t accumulation, int world);

}  // namespace ds::test
