#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "diagnostics/compare.h"
#include "diagnostics/feed.h"
#include "diagnostics/golden.h"
#include "diagnostics/verify_request.h"
#include "engine/engine.h"
#include "generation/generation_engine.h"
#include "nn/models/hf.h"

namespace ds {

// An engine with the subject's weights that trains as a record says.
class Trial {
 public:
  // `run` determines optimizer, clipping, element type and batches. Null: AdamW with its defaults,
  // in f32, on the recorded batch.
  Trial(const VerifySubject& subject, const Golden& golden, const GoldenRun* run,
        const VerifyRequest& options, Communicator& comm);

  // Returns the logits of the recorded batch, or of the first micro-batch in a run with
  // accumulation.
  std::vector<float> logits();
  // Returns the mean loss over the batches of the run, without an update.
  double loss();
  // Trains one step and appends its loss and gradient norm to numbers().
  void step();
  const RunNumbers& numbers() const { return numbers_; }
  std::vector<std::string> params() const { return engine_->store().param_names(); }
  // Returns a tensor of a parameter; `kind` is as in StateStore::read_tensor(). Throws
  // DS_ERROR_CONFIG if the model has no parameter with this name.
  std::vector<float> tensor(const std::string& name, const std::string& kind);

 private:
  HfModel model_;
  // The batches of the run, and the batches of a step on this rank.
  std::vector<const GoldenBatch*> all_, mine_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Feed> feed_;
  RunNumbers numbers_;
};

// Returns the continuation of the prompt with the most probable tokens, as `libds generate`
// computes it. Each call creates an engine, because rotary positions may depend on the length of
// the text. Collective.
std::vector<int32_t> continue_text(const VerifySubject& subject, const GoldenText& text,
                                   const VerifyRequest& options, Communicator& comm);

}  // namespace ds
