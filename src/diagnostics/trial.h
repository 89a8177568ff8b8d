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
#include "engine/inference.h"
#include "nn/models/hf.h"

namespace ds {

// One engine with the subject's weights, which trains as a record says.
class Trial {
 public:
  // run [nullable]: its optimizer, clipping, element type and batches; null: AdamW in f32 on the
  // batch.
  Trial(const VerifySubject& subject, const Golden& golden, const GoldenRun* run,
        const VerifyRequest& options, Communicator& comm);

  std::vector<float> logits();  // of the batch
  double loss();                // of the batches of the run, without an update
  void step();                  // one step; appends to numbers()
  const RunNumbers& numbers() const { return numbers_; }
  std::vector<std::string> params() const { return engine_->store().param_names(); }
  // kind as of StateStore::read_tensor. DS_ERROR_CONFIG when the model has no parameter of this
  // name.
  std::vector<float> tensor(const std::string& name, const std::string& kind);

 private:
  HfModel model_;
  std::vector<const GoldenBatch*> all_, mine_;  // of the run; of a step of this rank
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Feed> feed_;
  RunNumbers numbers_;
};

// The prompt's continuation with the most probable tokens, as `libds generate` gives it. Each text
// has an engine of its own: rotations may follow from a text's length. Collective.
std::vector<int32_t> continue_text(const VerifySubject& subject, const GoldenText& text,
                                   const VerifyRequest& options, Communicator& comm);

}  // namespace ds
