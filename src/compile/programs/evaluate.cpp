// Programs that run a graph forward: evaluation, inference, and the continuation of a text.
#include <cstdint>
#include <utility>
#include <vector>

#include "compile/decode_plan.h"
#include "compile/lower.h"
#include "compile/plan.h"
#include "compile/programs/programs.h"
#include "core/graph/readers.h"
#include "core/program/builder.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// Compiles a program that computes the values in `wanted` and writes each to the buffer with which
// it is paired.
Program evaluate(const Making& making, Phase phase, const Graph& graph,
                 const std::vector<std::pair<ValueId, BufferId>>& wanted) {
  const Plan& plan = making.plan;
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(plan.zero, phase_name(phase), graph.bound, buffers);
  Lowering(graph, plan.zero, plan.zero.memory.inputs, builder, buffers).evaluate(phase, wanted);
  return finished(making, builder, buffers);
}

}  // namespace

Program make_eval(const Making& making, const ProgramKey& key) {
  const Plan& plan = making.plan;
  const Graph& graph = plan.evaluated(key);
  std::vector<std::pair<ValueId, BufferId>> wanted{
      {graph.outputs[0].value, plan.zero.memory.eval_loss}};
  if (plan.zero.memory.eval_weight.exists())
    wanted.emplace_back(graph.loss_weight, plan.zero.memory.eval_weight);
  if (plan.zero.memory.eval_rewards.exists())
    wanted.emplace_back(rewards_of(graph), plan.zero.memory.eval_rewards);
  return evaluate(making, Phase::eval, graph, wanted);
}

Program make_infer(const Making& making, const ProgramKey& key) {
  const Plan& plan = making.plan;
  const Graph& graph = plan.evaluated(key);
  return evaluate(making, Phase::infer, graph, {{graph.outputs[1].value, plan.zero.memory.logits}});
}

Program make_decode(const Making& making, const ProgramKey&) {
  const DecodePlaces& decode = *making.plan.decode;
  const ZeroPlan& zero = making.plan.zero;
  StepBuffers buffers;
  ProgramBuilder builder =
      begin_program(zero, phase_name(Phase::decode), decode.graph.bound, buffers);
  // Caches belong only to this program; the other inputs have persistent buffers.
  IdVector<InputId, BufferId> inputs = decode.inputs;
  for (InputId i : inputs.ids()) {
    const Value& value = decode.graph.values[decode.graph.inputs[i]];
    if (!is_cache(value)) continue;
    const int64_t numel = value.type.shape.numel(decode.graph.bound);
    inputs[i] = builder.transient("decode." + value.name, value.type.dtype, numel, Tier::device);
    builder.program().buffers[inputs[i]].holds = Holds::cache;
  }
  Lowering(decode.graph, zero, inputs, builder, buffers)
      .evaluate(Phase::decode, {{decode.graph.outputs[0].value, decode.logits}});
  return finished(making, builder, buffers);
}

}  // namespace ds
