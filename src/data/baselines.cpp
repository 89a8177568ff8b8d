// Both models are measured in one pass over the counts of pairs: a held-out pair (a, b) is weighted
// by its number of occurrences.
#include "data/baselines.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/error.h"

namespace ds {
namespace {

// Counts of tokens and of adjacent pairs.
struct Counts {
  explicit Counts(int64_t vocab)
      : vocab(static_cast<size_t>(vocab)), single(this->vocab), pair(this->vocab * this->vocab) {}
  size_t vocab;
  std::vector<int64_t> single;
  // Indexed by first * vocab + second.
  std::vector<int64_t> pair;
};

// Reads the text in chunks, so that memory does not grow with it.
Counts count_tokens(const TokenSource& file) {
  Counts counts(file.vocab());
  std::vector<int32_t> chunk;
  // No token precedes the first one.
  size_t before = counts.vocab;
  for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(chunk.size())) {
    chunk.resize(static_cast<size_t>(std::min<int64_t>(file.size() - at, 1 << 16)));
    file.copy(at, chunk);
    for (int32_t token : chunk) {
      auto now = static_cast<size_t>(token);
      ++counts.single[now];
      if (before < counts.vocab) ++counts.pair[before * counts.vocab + now];
      before = now;
    }
  }
  return counts;
}

}  // namespace

Baselines measure_baselines(const TokenSource& train, const TokenSource& heldout,
                            int32_t separator) {
  require(train.vocab() <= kBaselineVocab, "vocab of a bigram baseline must be at most {}, got {}",
          kBaselineVocab, train.vocab());
  require(train.vocab() == heldout.vocab(),
          "train and held-out tokens must share a vocabulary, got {} and {}", train.vocab(),
          heldout.vocab());
  require(heldout.size() >= 2, "held-out text must have at least 2 tokens, got {}", heldout.size());
  Counts seen = count_tokens(train);
  Counts asked = count_tokens(heldout);
  size_t vocab = seen.vocab;
  auto total = static_cast<double>(train.size() + train.vocab());
  Baselines result;
  double pairs = 0;
  for (size_t a = 0; a < vocab; ++a) {
    // The token after a separator begins another document, so its prediction is not measured.
    if (static_cast<int64_t>(a) == separator) continue;
    const int64_t* row = seen.pair.data() + a * vocab;
    double followed = 0, different = 0;
    for (size_t b = 0; b < vocab; ++b) {
      followed += static_cast<double>(row[b]);
      different += row[b] > 0 ? 1 : 0;
    }
    for (size_t b = 0; b < vocab; ++b) {
      auto times = static_cast<double>(asked.pair[a * vocab + b]);
      if (times == 0) continue;
      // Only pairs that occur in the held-out text are evaluated.
      pairs += times;
      double single = (static_cast<double>(seen.single[b]) + 1) / total;
      double pair = followed == 0 ? single
                                  : (static_cast<double>(row[b]) + different * single) /
                                        (followed + different);
      result.unigram -= times * std::log(single);
      result.bigram -= times * std::log(pair);
    }
  }
  return {result.unigram / pairs, result.bigram / pairs};
}

}  // namespace ds
