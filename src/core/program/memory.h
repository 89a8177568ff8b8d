#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"
#include "core/program/program.h"

namespace ds {

// Everything that an engine keeps between runs of its programs: all persistent buffers, and those
// among them that programs and callers know by purpose. All programs of a plan begin with these
// buffers. Parameters and states are rows of ZeroPlan.
struct PersistentMemory {
  // The buffers, without offsets.
  IdVector<BufferId, Buffer> buffers;
  // One buffer per input, with elements for accumulation x bound rows.
  IdVector<InputId, BufferId> inputs;
  // Represents the step's scalars (Holds::scalars).
  BufferId scalars;
  // f32[accumulation]: the loss of each micro-step of this rank. With a loss_unit u, which is a
  // power of two, the weights w of the micro-steps follow, and the gradients of a micro-step are w
  // / u times those of its loss.
  BufferId loss;
  int64_t loss_unit = 0;
  // f32[1]
  BufferId eval_loss;
  // f32[1]; the value Graph::loss_weight of the evaluation graph, if it has one.
  BufferId eval_weight;
  // The graph's second output in the compute type, [bound, vocabulary]; none if there is no such
  // output.
  BufferId logits;

  BufferId add(Holds holds, std::string name, DType dtype, int64_t numel, Tier tier) {
    return buffers.add({std::move(name), dtype, numel, tier, Residency::persistent, -1, holds});
  }
};

}  // namespace ds
