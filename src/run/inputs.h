#pragma once
#include <span>
#include <vector>

#include "engine/engine.h"
#include "nn/models/hf.h"

namespace ds {

// The inputs of a language model for batches of whole sequences, in the order of its graph: the caller's
// tokens and targets, and what follows from the shape alone (nothing is padded; positions count up; every
// token is of type 0).
class ModelInputs {
 public:
  // Batches have up to `count` tokens, sequences of `seq`.
  ModelInputs(const HfModel& model, int64_t count, int64_t seq);

  // Views of `tokens`, `targets` (equally long) and of this object.
  std::vector<InputView> views(std::span<const int32_t> tokens, std::span<const int32_t> targets) const;

  int64_t vocabulary() const { return vocabulary_; }  // columns of the model's output

 private:
  enum class Kind : uint8_t { tokens, targets, mask, types, positions };
  std::vector<Kind> kinds_;  // per input of the graph
  std::vector<int32_t> ones_, zeros_, positions_;
  int64_t vocabulary_ = 0;
};

}  // namespace ds
