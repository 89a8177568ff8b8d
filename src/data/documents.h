#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/batch_rows.h"
#include "data/token_file.h"
#include "data/token_text.h"

namespace ds {

// How documents share a row. none: a row has one document. joined: documents that fit best share a
// row and form one text. isolated: documents share a row as with joined, but each sees only itself.
enum class Packing : uint8_t { none, joined, isolated };

// Samples of whole documents. A row of `sequence` tokens begins with a document and, without
// packing, holds only that one; the rest of the row is padding. Targets are the next tokens of the
// same document that are marked; elsewhere the target is kNoTarget. A document longer than a row is
// cut to the row's length or, if each of its tokens is a target, continues in further rows.
//
// With packing, documents share rows, those that fit best together, longest first.
// BatchRows::begins contains the start of each token's document or, with Packing::joined, of its
// row, so that a model that reads begins computes the same for such a row as one that does not.
// Each token of padding is a document of its own.
//
// With `group` above 1, each `group` consecutive documents form a sample of as many rows, one for
// each document, such as the two texts of a pair. A group in which a document has no target within
// its row is left out.
//
// Rows depend on the documents alone and are computed once. Each epoch visits them in a random
// permutation, so sample i is a pure function of (documents, sequence, packing, seed, i), as in
// TrainSampler.
class DocumentSampler {
 public:
  // The text must outlive the sampler. Throws DS_ERROR_CONFIG if it has fewer than batch_samples
  // rows.
  DocumentSampler(const TokenText& text, int64_t sequence, Packing packing, uint64_t seed,
                  int64_t batch_samples = 1, int64_t group = 1);

  int64_t epoch_samples() const { return (static_cast<int64_t>(rows_.size()) - 1) / group_; }
  // Returns the number of documents, or of groups, that have no target within a row.
  int64_t left_out() const { return left_out_; }
  // Returns the number of documents in rows that were cut.
  int64_t cut_short() const { return cut_short_; }
  // Returns the number of tokens of a row, without its padding.
  int64_t length(int64_t row) const;
  // Writes the documents of row `row` from token `at` of a micro-batch on. pad() must have filled
  // these rows: padding and the targets of tokens without one are not written.
  void place(int64_t row, size_t at, const BatchRows& to) const;
  // Writes row `row` with its padding.
  void fill(int64_t row, size_t at, const BatchRows& to) const;
  // Returns the first row of sample `sample` of the training stream.
  int64_t row(int64_t sample) const;
  // Fills rows like TrainSampler::rows, and also sets begins.
  void rows(int64_t first, int64_t count, const BatchRows& to) const;

 private:
  // The part of one document that is in one row. With `next`, the target of its last token is the
  // token after the piece.
  struct Piece {
    int64_t begin = 0;
    int32_t length = 0;
    bool next = false;
  };
  void cut(int64_t begin, const DocumentEnd& end);
  void drop_incomplete(size_t first);
  bool has_target(const Piece& piece) const;
  void one_a_row();
  void pack();

  const TokenText* text_;
  int64_t sequence_;
  const Packing packing_;
  uint64_t seed_;
  // The number of documents in a sample, unless they are packed.
  const int64_t group_;
  // The pieces in the order of rows.
  std::vector<Piece> pieces_;
  // Index of the first piece of each row, then the number of pieces.
  std::vector<int64_t> rows_;
  int64_t left_out_ = 0, cut_short_ = 0;
};

// Returns a line for the log about pairs of documents in rows of `sequence` tokens.
std::string describe_pairs(const DocumentSampler& pairs, int64_t sequence);

// Sets `begins` for rows of `sequence` tokens of a stream in which `separator` ends each document
// (-1: no token does, and each row is one document). The token after a separator belongs to the
// next document and is therefore not a target.
void find_documents(int32_t separator, int64_t sequence, const BatchRows& rows);

}  // namespace ds
