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

// Train and held-out tokens, from train.tokens and heldout.tokens of one folder or from token files
// of the user.
struct Dataset {
  // `heldout` may be empty.
  TokenText train, heldout;
  std::string corpus_hash = "";
};

// How the tokens of a text are used. `next`: the frame that the tokenizer puts around a text
// surrounds each file, and its end-of-text token follows. `masked`: the frame surrounds each sample
// instead (Masking); after each file comes the end of the frame ([SEP], for example) or, if that is
// empty, the end-of-text token.
enum class TextUse { next, masked };

// Encodes both texts and writes their files into `folder`, which must exist. One rank does this;
// then every rank opens the folder.
void prepare_dataset(const Corpus& corpus, const Tokenizer& tokenizer, const std::string& folder,
                     TextUse use = TextUse::next, const std::string& tokenizer_hash = kNoHash);
// Opens both files of a folder and hashes them completely. Throws DS_ERROR_NOT_FOUND and
// DS_ERROR_CORRUPT, the latter also if the files belong to different corpora.
Dataset open_dataset(const std::string& folder);

// Opens token files as they are and holds out the last share of their tokens or, if they hold
// documents, of their documents. `paths` are files, and folders searched for *.tokens.
// `tokenizer_hash` is the hash of the tokenizer that must have produced them; files of version 1 do
// not contain one. Throws DS_ERROR_NOT_FOUND, DS_ERROR_CORRUPT, DS_ERROR_CONFIG.
Dataset open_token_files(const std::vector<std::string>& paths, double heldout,
                         const std::string& tokenizer_hash);

// The training stream: an endless numbered sequence of samples. It is a pure function of (tokens,
// sequence, seed, index), so neither the layout of ranks nor a restart nor prefetch can change it.
// Epoch e cuts the text, from a random start offset, into epoch_samples() windows of `sequence`
// tokens and visits them in a random permutation. Within an epoch every window comes once, and the
// borders of windows differ between epochs. With `masking`, samples are its rows, masked again in
// each epoch, and windows are shorter by its frame.
class TrainSampler {
 public:
  // `file` and `masking` [nullable] must outlive the sampler. Throws DS_ERROR_CONFIG if the text
  // has fewer than batch_samples windows.
  TrainSampler(const TokenSource& file, int64_t sequence, uint64_t seed, int64_t batch_samples = 1,
               const Masking* masking = nullptr);
  int64_t epoch_samples() const { return windows_; }
  // Returns the index of the first text token of a sample. Without masking, the last target is
  // token begin + sequence.
  int64_t begin(int64_t sample) const;

  // Fills samples first to first + count - 1, one row each. Targets are the next tokens, or those
  // that masking chooses. `to.begins` is not changed.
  void rows(int64_t first, int64_t count, const BatchRows& to) const;

 private:
  const TokenSource* file_;
  const Masking* masking_;
  // Number of tokens in a sample, of text tokens among them, and of samples in an epoch.
  int64_t sequence_, window_, windows_;
  uint64_t seed_;
};

// The rows of a held-out text. Together they contain each target of the text once, and they are the
// same at every evaluation and on any layout of ranks. Without masking, row r has tokens [r *
// sequence, (r + 1) * sequence) and the token after each of them; the last row may end with
// padding, and the first token of the text is not a target. With masking, windows are shorter by
// its frame, and the last one ends with the text; the part that it shares with the window before it
// has no targets. Which tokens are hidden depends on the text and the position in it, not on the
// seed of the run.
class HeldoutSampler {
 public:
  // Throws DS_ERROR_CONFIG if the text is too short: it needs 2 tokens, or one window with masking.
  HeldoutSampler(const TokenSource& file, int64_t sequence, const Masking* masking = nullptr);
  int64_t rows() const;
  // Writes row `row` to the micro-batch, from token `at` on. `to.begins` is not changed.
  void fill(int64_t row, size_t at, const BatchRows& to) const;

 private:
  const TokenSource* file_;
  const Masking* masking_;
  int64_t sequence_, window_;
};

}  // namespace ds
