#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/masking.h"
#include "data/token_file.h"
#include "data/token_source.h"
#include "data/token_text.h"
#include "data/tokenizer.h"

namespace ds {

// Train and held-out tokens: of one folder, train.tokens and heldout.tokens, or of token files.
struct Dataset {
  TokenText train, heldout;  // heldout may have no tokens
  std::string corpus_hash = "";
};

// What the tokens of a text are for. `next`: what the tokenizer puts around a text is around each file, and
// its end-of-text token follows. `masked`: it is put around each sample instead (Masking), and what it has
// behind a text follows each file ([SEP], say), else the end-of-text token.
enum class TextUse { next, masked };

// Encodes both texts and writes their files into `folder`, which exists. One rank does this; then every rank
// opens the folder.
void prepare_dataset(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& folder,
                     TextUse use = TextUse::next, const std::string& tokenizer_hash = kNoHash);
// Reads both files whole, so that damage is found now. Throws _NOT_FOUND, _CORRUPT (also: files of two
// corpora).
Dataset open_dataset(const std::string& folder);

// Token files as they are, with the last share of their tokens, or of their documents, held out. paths:
// files, and folders searched for *.tokens. tokenizer_hash: of the tokenizer that they must be of; files of
// version 1 do not say. Throws _NOT_FOUND, _CORRUPT, _CONFIG.
Dataset open_token_files(const std::vector<std::string>& paths, double heldout,
                         const std::string& tokenizer_hash);

// The training stream: an endless numbered sequence of samples, a pure function of (tokens, sequence, seed,
// index), so rank layout, restart and prefetch cannot change it. Epoch e cuts the text, from a start offset
// drawn for the epoch, into epoch_samples() windows of `sequence` tokens and visits them in a permutation
// drawn for the epoch: within an epoch every window comes once, and window borders differ between epochs.
// With `masking`, samples are rows of it, drawn anew in each epoch, and windows are shorter by their frame.
class TrainSampler {
 public:
  // file and masking [nullable] outlive the sampler. Throws DS_ERROR_CONFIG when the text has fewer than
  // batch_samples windows.
  TrainSampler(const TokenSource& file, int64_t sequence, uint64_t seed, int64_t batch_samples = 1,
               const Masking* masking = nullptr);
  int64_t epoch_samples() const { return windows_; }
  int64_t begin(int64_t sample) const;  // first token of a sample; its last target is begin + sequence

  // The micro-batch of leaf `leaf` in `step`, of `leaves` a step: samples (step * leaves + leaf) *
  // micro_batch and following. tokens and targets hold micro_batch * sequence each; targets are the next
  // tokens, or as masking has them.
  void leaf(int64_t step, int64_t leaves, int64_t leaf, int64_t micro_batch, std::span<int32_t> tokens,
            std::span<int32_t> targets) const;

 private:
  const TokenSource* file_;
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
  HeldoutSampler(const TokenSource& file, int64_t sequence, const Masking* masking = nullptr);
  int64_t begin(int64_t window, int64_t total) const;
  // Windows [first, first + count) of total; tokens and targets hold count * sequence each.
  void windows(int64_t first, int64_t count, int64_t total, std::span<int32_t> tokens,
               std::span<int32_t> targets) const;

 private:
  const TokenSource* file_;
  const Masking* masking_;
  int64_t sequence_, window_;
};

}  // namespace ds
