#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"
#include "core/program/program.h"

namespace ds {

// The persistent buffers of an engine, with which all programs of a plan begin, and the ids of
// buffers with a fixed purpose. ZeroPlan has the ids of the buffers of parameters and states.
struct PersistentMemory {
  // The buffers, without offsets.
  IdVector<BufferId, Buffer> buffers;
  // The buffer of each input, with elements for accumulation * bound rows.
  IdVector<InputId, BufferId> inputs;
  // The buffer that represents the step's scalars (Holds::scalars).
  BufferId scalars;
  // The loss of each micro-step of this rank, f32[accumulation]. If loss_unit is not 0, the weight
  // of each micro-step follows, and the gradients of a micro-step are those of its loss times
  // weight / loss_unit. loss_unit is a power of two.
  BufferId loss;
  int64_t loss_unit = 0;
  // The loss of an evaluation, f32[1].
  BufferId eval_loss;
  // The value Graph::loss_weight of the evaluation graph, f32[1], if the graph has one.
  BufferId eval_weight;
  // The rewards of each micro-step of this rank, f32[4 * accumulation], and of an evaluation,
  // f32[4], if the loss compares pairs (op preference_loss).
  BufferId rewards, eval_rewards;
  // The graph's second output, with n at its bound. The id does not exist if the graph has no
  // second output.
  BufferId logits;

  BufferId add(Holds holds, std::string name, DType dtype, int64_t numel, Tier tier) {
    return buffers.add({std::move(name), dtype, numel, tier, Residency::persistent, -1, holds});
  }
};

}  // namespace ds
