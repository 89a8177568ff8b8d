#pragma once
#include <cstdint>

#include "data/token_source.h"

namespace ds {

// The cross-entropy of simple models of the training text on the held-out text, in nats per token
// (per byte with the bytes tokenizer), over the held-out tokens after the first. With c the counts
// in the training text, N its tokens and V the vocabulary:
// unigram  p(b) = (c(b) + 1) / (N + V), add-one smoothing;
// bigram   p(b|a) = (c(ab) + T(a) p(b)) / (c(a) + T(a)), Witten-Bell interpolation with the unigram
// model, where T(a) is the number of different tokens that follow a (Witten and Bell, IEEE Trans.
// Inf. Theory 37(4), 1991).
// A trained model that does not beat `bigram` has learnt less than adjacent pairs.
struct Baselines {
  double unigram = 0;
  double bigram = 0;
};

// The largest vocabulary for which baselines are measured.
constexpr int64_t kBaselineVocab = 4096;

// Measures both baselines. Throws unless both texts have the same vocabulary of at most
// kBaselineVocab tokens, and the held-out text has at least two tokens. The token `separator` ends
// a document; no model is asked to predict the held-out token that follows it. A separator of -1
// means that no token separates documents.
Baselines measure_baselines(const TokenSource& train, const TokenSource& heldout,
                            int32_t separator = -1);

}  // namespace ds
