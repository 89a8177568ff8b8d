#include "compile/decode_plan.h"

#include <algorithm>
#include <cstdint>

#include "compile/lower.h"
#include "core/base/hash.h"
#include "core/program/builder.h"
#include "core/program/mesh.h"
#include "passes/cse.h"
#include "passes/decode_graph.h"
#include "passes/fusion.h"
#include "passes/precision.h"
#include "zero/init.h"
#include "zero/step_buffers.h"

namespace ds {

bool is_cache(const Value& input) { return input.type.dtype != DS_DTYPE_I32; }

DecodePlan begin_decode(const Graph& forward, DType compute, const DecodeRequest& request,
                        ZeroPlan& zero) {
  DecodePlan plan;
  plan.positions = request.positions;
  plan.position_offset = request.position_offset;
  int64_t chunk = std::min(request.chunk, request.positions);
  plan.graph = decode_graph(forward, {request.positions, chunk, request.by_length});
  set_precision(plan.graph, compute);
  if (plan.graph.type(plan.graph.outputs[0].value).dtype == DS_DTYPE_F64)
    cast_output(plan.graph, 0);
  fuse(plan.graph);
  eliminate_common_subexpressions(plan.graph);
  for (ValueId in : plan.graph.inputs) {
    const Value& value = plan.graph.values[in];
    if (is_cache(value)) {
      plan.inputs.push_back(BufferId());
      continue;
    }
    plan.inputs.push_back(zero.add(Holds::input, "decode." + value.name, value.type.dtype,
                                   value.type.shape.numel(plan.graph.bound), Tier::device));
  }
  const TensorType& logits = plan.graph.type(plan.graph.outputs[0].value);
  plan.logits =
      zero.add(Holds::result, "decode.logits", logits.dtype, logits.shape.numel(1), Tier::device);
  return plan;
}

void finish_decode(DecodePlan& plan, const ZeroPlan& zero, const Config& config,
                   const Machine& machine, const FinishOptions& options) {
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(zero, "decode", plan.graph.bound, buffers);
  for (InputId i : plan.inputs.ids()) {
    const Value& value = plan.graph.values[plan.graph.inputs[i]];
    if (!is_cache(value)) continue;
    const int64_t numel = value.type.shape.numel(plan.graph.bound);
    plan.inputs[i] =
        builder.transient("decode." + value.name, value.type.dtype, numel, Tier::device);
    builder.program().buffers[plan.inputs[i]].holds = Holds::cache;
  }
  Lowering(plan.graph, zero, plan.inputs, builder, buffers)
      .evaluate(Phase::decode, {{plan.graph.outputs[0].value, plan.logits}});
  plan.program = builder.take();
  finish_program(plan.program, zero, config, buffers, machine, options);
}

MemoryPlan memory_plan(const InferencePlan& plan) {
  MemoryPlan memory;
  memory.add(plan.refresh);
  memory.add(plan.decode.program);
  return memory;
}

InferencePlan compile_inference(const Graph& forward, const Config& config,
                                const DecodeRequest& request, int rank, const Mesh& mesh,
                                const Machine& machine, bool verify_passes) {
  InferencePlan plan;
  std::vector<ParamSpec> params;
  for (const Parameter& p : forward.params)
    params.push_back({p.name, forward.type(p.value).shape.numel(1)});
  plan.zero = make_zero_plan(config, params, rank, mesh, machine, false);
  plan.decode = begin_decode(forward, config.compute, request, plan.zero);
  const FinishOptions options{.prefetch = config.zero.overlap_comm, .verify_passes = verify_passes};
  finish_decode(plan.decode, plan.zero, config, machine, options);
  StepBuffers buffers;
  ProgramBuilder builder = begin_program(plan.zero, "refresh", 1, buffers);
  emit_refresh(builder, plan.zero);
  plan.refresh = builder.take();
  finish_program(plan.refresh, plan.zero, config, buffers, machine, options);
  check_budget(plan.zero.buffers, memory_plan(plan), config.memory_budget);
  Hash128 hash;
  hash.update(plan.decode.graph.print());
  hash.update(config.shared_text());
  plan.hash = hash.hex();
  return plan;
}

}  // namespace ds
