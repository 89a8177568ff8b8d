#pragma once
#include <cstdint>
#include <span>

namespace ds {

// How the next token is chosen from one row of logits.
struct SamplingOptions {
  double temperature = 0;  // 0: the most probable token (the smallest id among equals)
  int64_t top_k = 0;       // draw among the k most probable tokens only; 0: all
  uint64_t seed = 0;
};

// Token for generated position `position` (0-based): a pure function of its arguments, so every
// rank that sees the same logits draws the same token. Throws DS_ERROR_INVALID_ARGUMENT on options
// out of range and DS_ERROR_NUMERIC when no logit is finite.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     int64_t position);

}  // namespace ds
