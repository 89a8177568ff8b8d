#pragma once
#include <cstdint>

#include "data/token_source.h"

namespace ds {

// Cross-entropy of simple models of the training text on the held-out text, in nats per token (per
// byte with the bytes tokenizer), over the held-out tokens after the first.
//   unigram  p(b) = (c(b) + 1) / (N + V): add-one smoothing, V the vocabulary
//   bigram   p(b|a) = (c(ab) + T(a) p(b)) / (c(a) + T(a)): Witten-Bell interpolation with the
//   unigram model,
//            T(a) the number of different tokens that follow a (Witten and Bell, IEEE Trans. Inf.
//            Theory 37(4), 1991)
// A trained model that does not beat `bigram` has learnt less than adjacent pairs.
struct Baselines {
  double unigram = 0;
  double bigram = 0;
};

constexpr int64_t kBaselineVocab = 4096;  // the largest vocabulary they are measured for

// Needs a vocabulary of at most kBaselineVocab and two held-out tokens; throws otherwise.
// separator: a token that ends a document; the held-out token behind it is none that a model is
// asked for. -1: there is none.
Baselines measure_baselines(const TokenSource& train, const TokenSource& heldout,
                            int32_t separator = -1);

}  // namespace ds
