#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch_rows.h"
#include "engine/engine.h"
#include "nn/models/hf.h"

namespace ds {

// The inputs of a language model in the order of its graph: the caller's tokens and targets, and
// what this object holds beside them. Positions count the tokens of a sequence that the mask does
// not hide, or the rows of a document.
class ModelInputs {
 public:
  // Batches have up to `count` tokens, sequences of `seq`. mask, types: of `count` tokens, or
  // empty: nothing is hidden, every token is of type 0. unit: tokens of a micro-batch, whose rows
  // begin counts; 0: count. DS_ERROR_UNSUPPORTED naming an input that nothing here fills.
  ModelInputs(const HfModel& model, int64_t count, int64_t seq, std::vector<int32_t> mask = {},
              std::vector<int32_t> types = {}, int64_t unit = 0);

  // Views of `tokens`, `targets` (equally long) and of this object; each sequence is a document.
  std::vector<InputView> views(std::span<const int32_t> tokens,
                               std::span<const int32_t> targets) const;
  // The same with the documents of micro-batches of `unit` tokens, and with what of them is
  // padding; the views of the call before are gone.
  std::vector<InputView> views(const BatchRows& rows, int64_t unit);

  // Whether nothing goes in that depends on `seq`, so that sequences may be shorter.
  bool any_length() const;
  bool documents() const { return documents_; }       // whether it takes `begin`
  bool counts() const;                                // whether it takes `counted`
  int64_t vocabulary() const { return vocabulary_; }  // columns of the model's output

 private:
  enum class Kind : uint8_t { tokens, targets, mask, types, begins, positions, counted };
  bool takes(Kind kind) const;
  void count_positions(int64_t count, int64_t seq);
  void set_documents(std::span<const int32_t> begins, int64_t unit);

  std::vector<Kind> kinds_;  // per input of the graph
  std::vector<int32_t> mask_, types_, begins_, positions_, counted_;
  int64_t position_offset_ = 0;
  bool documents_ = false;
  int64_t vocabulary_ = 0;
};

}  // namespace ds
