#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "data/corpus.h"
#include "data/masking.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace ds {

// Train and held-out tokens in one folder: train.tokens, heldout.tokens.
struct Dataset {
  TokenFile train, heldout;  // heldout may have no tokens
};

// What the tokens of a text are for. `next`: what the tokenizer puts around a text is around each file, and
// its end-of-text token follows. `masked`: it is put around each sample instead (Masking), and what it has
// behind a text follows each file ([SEP], say), else the end-of-text token.
enum class TextUse { next, masked };

// Encodes both texts and writes their files into `folder`, which exists. One rank does this; then every rank
// opens the folder.
void prepare_dataset(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& folder,
                     TextUse use = TextUse::next);
Dataset open_dataset(const std::string& folder);  // throws _NOT_FOUND, _CORRUPT (also: files of two corpora)

// The training stream: an endless numbered sequence of samples, a pure function of (tokens, sequence, seed,
// index), so rank layout, restart and prefetch cannot change it. Epoch e cuts the text, from a start offset
// drawn for the epoch, into epoch_samples() windows of `sequence` tokens and visits them in a permutation
// drawn for the epoch: within an epoch every window comes once, and window borders differ between epochs.
// With `masking`, samples are rows of it, drawn anew in each epoch, and windows are shorter by their frame.
class TrainSampler {
 public:
  // file and masking [nullable] outlive the sampler. Throws DS_ERROR_CONFIG when the text has fewer than
  // batch_samples windows.
  TrainSampler(const TokenFile& file, int64_t sequence, uint64_t seed, int64_t batch_samples = 1,
               const Masking* masking = nullptr);
  int64_t epoch_samples() const { return windows_; }
  int64_t begin(int64_t sample) const;  // first token of a sample; its last target is begin + sequence

  // The micro-batch of leaf `leaf` in `step`, of `leaves` a step: samples (step * leaves + leaf) *
  // micro_batch and following. tokens and targets hold micro_batch * sequence each; targets are the next
  // tokens, or as masking has them.
  void leaf(int64_t step, int64_t leaves, int64_t leaf, int64_t micro_batch, std::span<int32_t> tokens,
            std::span<int32_t> targets) const;

 private:
  const TokenFile* file_;
  const Masking* masking_;
  int64_t sequence_, window_, windows_;  // tokens of a sample, those of text in it, samples of an epoch
  uint64_t seed_;
};

// Held-out windows: window w of `total` begins at w * (tokens - 1 - sequence) / (total - 1), so any number of
// windows spreads evenly over the whole text, the same ones at every evaluation and on any rank layout. What
// `masking` hides depends on the place in the text alone, not on the run's seed.
class HeldoutSampler {
 public:
  // Throws DS_ERROR_CONFIG when the text is too short.
  HeldoutSampler(const TokenFile& file, int64_t sequence, const Masking* masking = nullptr);
  int64_t begin(int64_t window, int64_t total) const;
  // Windows [first, first + count) of total; tokens and targets hold count * sequence each.
  void windows(int64_t first, int64_t count, int64_t total, std::span<int32_t> tokens,
               std::span<int32_t> targets) const;

 private:
  const TokenFile* file_;
  const Masking* masking_;
  int64_t sequence_, window_;
};

}  // namespace ds
