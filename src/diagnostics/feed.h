#pragma once
#include <cstdint>
#include <vector>

#include "diagnostics/golden.h"
#include "engine/engine.h"
#include "nn/models/hf.h"
#include "run/inputs.h"

namespace ds {

// The inputs of a model graph for recorded batches, in the order of the graph: for one batch, or
// for the micro-batches of a step, one after the other.
class Feed {
 public:
  // Throws DS_ERROR_UNSUPPORTED if a batch has padding or token types but the model has no input
  // for them.
  Feed(const HfModel& model, const std::vector<const GoldenBatch*>& batches);
  std::vector<InputView> views() const { return inputs_.views(tokens_.ids, tokens_.labels); }

 private:
  // The tokens of all batches, with labels as the graph expects them.
  GoldenBatch tokens_;
  ModelInputs inputs_;
};

}  // namespace ds
