#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace ds {

// The rows of a micro-batch that a sampler fills: token ids and, equally long, what each is to
// predict.
struct BatchRows {
  std::span<int32_t> tokens, targets;
  // Where in the micro-batch the document of each token begins; empty where nobody asks.
  std::span<int32_t> begins = {};
  // 1 for a token, 0 for padding; empty where nobody asks.
  std::span<int32_t> counted = {};

  BatchRows part(size_t at,
                 size_t count) const;  // of all four; begins still count from the micro-batch's
};

// Makes `count` tokens from `at` on padding: token 0 without a target, each a document of its own.
void pad(size_t at, size_t count, const BatchRows& to);

// Throws unless tokens and targets hold `wanted` elements, and begins and counted as many or none.
void check_rows(const BatchRows& to, int64_t wanted);

}  // namespace ds
