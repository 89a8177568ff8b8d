#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/batch_rows.h"
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

// What the tokens of a text are for. `next`: what the tokenizer puts around a text is around each
// file, and its end-of-text token follows. `masked`: it is put around each sample instead
// (Masking), and what it has behind a text follows each file ([SEP], say), else the end-of-text
// token.
enum class TextUse { next, masked };

// Encodes both texts and writes their files into `folder`, which exists. One rank does this; then
// every rank opens the folder.
void prepare_dataset(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& folder,
                     TextUse use = TextUse::next, const std::string& tokenizer_hash = kNoHash);
// Reads both files whole, so that damage is found now. Throws _NOT_FOUND, _CORRUPT (also: files of
// two corpora).
Dataset open_dataset(const std::string& folder);

// Token files as they are, with the last share of their tokens, or of their documents, held out.
// paths: files, and folders searched for *.tokens. tokenizer_hash: of the tokenizer that they must
// be of; files of version 1 do not say. Throws _NOT_FOUND, _CORRUPT, _CONFIG.
Dataset open_token_files(const std::vector<std::string>& paths, double heldout,
                         const std::string& tokenizer_hash);

// The training stream: an endless numbered sequence of samples, a pure function of (tokens,
// sequence, seed, index), so rank layout, restart and prefetch cannot change it. Epoch e cuts the
// text, from a start offset drawn for the epoch, into epoch_samples() windows of `sequence` tokens
// and visits them in a permutation drawn for the epoch: within an epoch every window comes once,
// and window borders differ between epochs. With `masking`, samples are rows of it, drawn anew in
// each epoch, and windows are shorter by their frame.
class TrainSampler {
 public:
  // file and masking [nullable] outlive the sampler. Throws DS_ERROR_CONFIG when the text has fewer
  // than batch_samples windows.
  TrainSampler(const TokenSource& file, int64_t sequence, uint64_t seed, int64_t batch_samples = 1,
               const Masking* masking = nullptr);
  int64_t epoch_samples() const { return windows_; }
  int64_t begin(
      int64_t sample) const;  // first token of a sample; its last target is begin + sequence

  // Samples first to first + count - 1, one row each. Targets are the next tokens, or as masking
  // has them; begins of `to` are left as they are.
  void rows(int64_t first, int64_t count, const BatchRows& to) const;

 private:
  const TokenSource* file_;
  const Masking* masking_;
  int64_t sequence_, window_,
      windows_;  // tokens of a sample, those of text in it, samples of an epoch
  uint64_t seed_;
};

// The rows of a held-out text, which together have each of its targets once: the same ones at every
// evaluation and on any layout. Without masking, row r has tokens [r * sequence, (r + 1) *
// sequence) and what follows each of them, and the last one ends with padding; the first token of
// the text is nobody's target. With masking, windows are shorter by its frame, the last one ends
// with the text, and of what it shares with the one before it has no targets. What is hidden
// depends on the place in the text alone, not on the run's seed.
class HeldoutSampler {
 public:
  // Throws DS_ERROR_CONFIG when the text is too short: 2 tokens, with masking one window.
  HeldoutSampler(const TokenSource& file, int64_t sequence, const Masking* masking = nullptr);
  int64_t rows() const;
  // Row `row` into the micro-batch from token `at` on; begins of `to` are left as they are.
  void fill(int64_t row, size_t at, const BatchRows& to) const;

 private:
  const TokenSource* file_;
  const Masking* masking_;
  int64_t sequence_, window_;
};

}  // namespace ds
