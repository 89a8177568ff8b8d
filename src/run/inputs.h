#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch_rows.h"
#include "engine/engine.h"
#include "nn/models/hf.h"

namespace ds {

// The inputs of a language model in the order of its graph: tokens and targets from the caller, and
// the other inputs, which this object stores. A position is the number of unmasked tokens that
// precede the token in its sequence, or the index of the row within its document, plus the model's
// position offset.
class ModelInputs {
 public:
  // Batches have up to `count` tokens in sequences of `seq` tokens. `mask` and `types` have `count`
  // elements, or are empty: then nothing is masked, and every token has type 0. The values of the
  // input `begin` are indices of rows within a micro-batch of `unit` tokens; 0 means `count`.
  // Throws DS_ERROR_UNSUPPORTED naming an input that this class cannot fill.
  ModelInputs(const HfModel& model, int64_t count, int64_t seq, std::vector<int32_t> mask = {},
              std::vector<int32_t> types = {}, int64_t unit = 0);

  // Returns views of `tokens`, `targets` (equally long) and the inputs in this object. Each
  // sequence is one document, unless the other function has set documents before.
  std::vector<InputView> views(std::span<const int32_t> tokens,
                               std::span<const int32_t> targets) const;
  // Returns views of `rows`, in micro-batches of `unit` tokens, with their documents and padding.
  // Invalidates the views of the previous call.
  std::vector<InputView> views(const BatchRows& rows, int64_t unit);

  // Returns whether no input depends on `seq`, so that sequences may be shorter.
  bool any_length() const;
  // Returns whether the model has the input `begin`.
  bool documents() const { return documents_; }
  // Returns whether batches must say which tokens are padding: for the input `counted`, or for
  // targets among all tokens of chosen texts.
  bool counts() const;
  // Returns whether the model has an input for the losses of a reference.
  bool referred() const;
  // Returns the number of columns of the logits.
  int64_t vocabulary() const { return vocabulary_; }

 private:
  enum class Kind : uint8_t {
    tokens,
    targets,
    mask,
    types,
    begins,
    positions,
    counted,
    reference,
    chosen_tokens,
    chosen_targets
  };
  bool takes(Kind kind) const;
  static bool takes_chosen(Kind kind);
  void set_chosen(const BatchRows& rows);
  void count_positions(int64_t count, int64_t seq);
  void set_documents(std::span<const int32_t> begins, int64_t unit);

  // The kind of each input of the graph, in the graph's order.
  std::vector<Kind> kinds_;
  std::vector<int32_t> mask_, types_, begins_, positions_, counted_, chosen_;
  std::vector<float> reference_;
  int64_t sequence_ = 0;
  int64_t position_offset_ = 0;
  bool documents_ = false;
  int64_t vocabulary_ = 0;
};

}  // namespace ds
