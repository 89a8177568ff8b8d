#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "nn/models/hf.h"

namespace ds {

// The inputs of a language model in the order of its graph: the caller's tokens and targets, and what this
// object holds beside them. Positions count the tokens of a sequence that the mask does not hide.
class ModelInputs {
 public:
  // Batches have up to `count` tokens, sequences of `seq`. mask, types: of `count` tokens, or empty: nothing
  // is hidden, every token is of type 0. DS_ERROR_UNSUPPORTED naming an input that nothing here fills.
  ModelInputs(const HfModel& model, int64_t count, int64_t seq, std::vector<int32_t> mask = {},
              std::vector<int32_t> types = {});

  // Views of `tokens`, `targets` (equally long) and of this object.
  std::vector<InputView> views(std::span<const int32_t> tokens, std::span<const int32_t> targets) const;

  // Whether nothing but tokens and targets goes in, so that sequences may be shorter than `seq`.
  bool tokens_only() const;
  int64_t vocabulary() const { return vocabulary_; }  // columns of the model's output

 private:
  enum class Kind : uint8_t { tokens, targets, mask, types, positions };
  void count_positions(int64_t count, int64_t seq, int64_t offset);

  std::vector<Kind> kinds_;  // per input of the graph
  std::vector<int32_t> mask_, types_, positions_;
  int64_t vocabulary_ = 0;
};

}  // namespace ds
