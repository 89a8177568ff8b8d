#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/batch_rows.h"
#include "data/token_file.h"
#include "data/token_text.h"

namespace ds {

// What documents share a row: each has one; those that fit best, which then are one text; or the
// same, and each sees only itself.
enum class Packing : uint8_t { none, joined, isolated };

// Samples of whole documents: a row of `sequence` tokens begins with a document, and without
// packing has only that one; what is left of a row is padding. Targets are the next tokens of the
// same document that are marked, kNoTarget elsewhere. A document longer than a row is cut to it,
// or, when each of its tokens is a target, goes on in further rows. With packing, documents share
// rows: those that fit best, longest first. BatchRows::begins are those of documents, with
// Packing::joined those of rows, so a model that asks for them computes what one that does not ask
// computes of such a row. Padding is documents of one token.
//
// Rows are made once, of the documents alone, and each epoch visits them in a permutation that is
// drawn for it; so sample i is a pure function of (documents, sequence, packing, seed, i), as in
// TrainSampler.
class DocumentSampler {
 public:
  // The text outlives the sampler. DS_ERROR_CONFIG when it has fewer than batch_samples rows.
  DocumentSampler(const TokenText& text, int64_t sequence, Packing packing, uint64_t seed,
                  int64_t batch_samples = 1);

  int64_t epoch_samples() const { return static_cast<int64_t>(rows_.size()) - 1; }
  int64_t left_out() const { return left_out_; }  // documents without a target within a row
  int64_t length(int64_t row) const;              // tokens of a row, without padding
  // Those of row `row`, from token `at` of a micro-batch on; its padding stays as it is.
  void place(int64_t row, size_t at, const BatchRows& to) const;
  // Row `row` with its padding.
  void fill(int64_t row, size_t at, const BatchRows& to) const;
  // Row of sample `sample` of the training stream.
  int64_t row(int64_t sample) const;
  // As TrainSampler::rows, with begins.
  void rows(int64_t first, int64_t count, const BatchRows& to) const;

 private:
  // Tokens of one document in a row; with `next`, the token behind the last one is its target.
  struct Piece {
    int64_t begin = 0;
    int32_t length = 0;
    bool next = false;
  };
  void cut(int64_t begin, const DocumentEnd& end);
  bool has_target(const Piece& piece) const;
  void one_a_row();
  void pack();

  const TokenText* text_;
  int64_t sequence_;
  const Packing packing_;
  uint64_t seed_;
  std::vector<Piece> pieces_;  // in order of rows
  std::vector<int64_t> rows_;  // first piece of each row, then the number of pieces
  int64_t left_out_ = 0;
};

// What `begins` is for rows of `sequence` tokens of a stream, in which `separator` ends each
// document (-1: no token does, and rows are whole). The token behind one is no target: it is of the
// next document.
void find_documents(int32_t separator, int64_t sequence, const BatchRows& rows);

}  // namespace ds
