#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace ds {

// The rows of a micro-batch that a sampler fills: token ids and, for each, the token that the model
// must predict at that place, or kNoTarget.
struct BatchRows {
  std::span<int32_t> tokens, targets;
  // Offset in the micro-batch at which the document of each token begins. Empty if the model does
  // not need it.
  std::span<int32_t> begins = {};
  // 1 for a token, 0 for padding. Empty if the model does not need it.
  std::span<int32_t> counted = {};
  // The reference's losses in the rows of a pair's texts. Empty if the loss has no reference.
  std::span<float> reference = {};

  // Returns elements [at, at + count) of all spans. The begins are still offsets in the
  // micro-batch.
  BatchRows part(size_t at, size_t count) const;
};

// Turns the `count` tokens from `at` on into padding: token 0 without a target, each a document of
// its own.
void pad(size_t at, size_t count, const BatchRows& to);

// Throws unless tokens and targets hold `wanted` elements each, and begins and counted hold
// `wanted` elements or are empty.
void check_rows(const BatchRows& to, int64_t wanted);

}  // namespace ds
