#pragma once
#include <cstdint>
#include <vector>

#include "diagnostics/golden.h"
#include "engine/engine.h"
#include "nn/models/hf.h"
#include "run/inputs.h"

namespace ds {

// The inputs of a model graph for recorded batches, in graph order: one batch, or the micro-batches
// of a step one after the other.
class Feed {
 public:
  // Throws DS_ERROR_UNSUPPORTED when a batch has padding or token types that the model has no input
  // for.
  Feed(const HfModel& model, const std::vector<const GoldenBatch*>& batches);
  std::vector<InputView> views() const { return inputs_.views(tokens_.ids, tokens_.labels); }

 private:
  GoldenBatch tokens_;  // of all batches; labels as the graph takes them
  ModelInputs inputs_;
};

}  // namespace ds
