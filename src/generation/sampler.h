#pragma once
#include <cstdint>
#include <span>

namespace ds {

// The rule by which the next token is chosen from one row of logits.
struct SamplingOptions {
  // The logits are divided by it. 0 chooses the most probable token; among equally probable tokens
  // the smallest id wins.
  double temperature = 0;
  // The number of most probable tokens to choose from. 0 chooses from all tokens.
  int64_t top_k = 0;
  uint64_t seed = 0;
};

// Returns the token for generated position `position`, which counts from 0. It is a pure function
// of its arguments, so every rank with the same logits chooses the same token. Throws
// DS_ERROR_INVALID_ARGUMENT if an option is out of range and DS_ERROR_NUMERIC if a logit is NaN or
// the largest one is not finite.
int32_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                     int64_t position);

}  // namespace ds
