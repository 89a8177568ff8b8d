#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "inference/sampler.h"

namespace ds {

// Continues `prompt` by `tokens` tokens. There is no cache: every token is a forward pass over the last
// Config::sequence tokens at most. Collective: all ranks pass the same arguments and get the same tokens.
// The engine's graph has i32[n] inputs (token ids first; any others are filled with -100, "no target") and
// logits [n,V] as output 1. each [nullable] sees every new token as it is drawn; false, on all ranks, ends
// the text there.
std::vector<int32_t> generate(Engine& engine, std::span<const int32_t> prompt, int64_t tokens,
                              const SamplingOptions& options, const std::function<bool(int32_t)>& each = {});

}  // namespace ds
