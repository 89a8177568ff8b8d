#include "compile/decode_plan.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "compile/programs/programs.h"
#include "core/base/hash.h"
#include "core/program/mesh.h"
#include "passes/cse.h"
#include "passes/decode_graph.h"
#include "passes/fusion_rules.h"
#include "passes/precision.h"
#include "passes/rewrite.h"
#include "zero/policy.h"

namespace ds {

// Ids, positions and lengths are i32; caches have a floating type.
bool is_cache(const Value& input) { return input.type.dtype != DS_DTYPE_I32; }

DecodePlaces begin_decode(const Graph& forward, DType compute, const DecodeRequest& request,
                          ZeroPlan& zero) {
  DecodePlaces plan;
  plan.positions = request.positions;
  plan.position_offset = request.position_offset;
  int64_t chunk = std::min(request.chunk, request.positions);
  plan.graph = decode_graph(forward, {request.positions, chunk, request.by_length});
  set_precision(plan.graph, compute);
  if (plan.graph.type(plan.graph.outputs[0].value).dtype == DS_DTYPE_F64)
    cast_output(plan.graph, 0);
  rewrite(plan.graph, gate_rules());
  eliminate_common_subexpressions(plan.graph);
  for (ValueId in : plan.graph.inputs) {
    const Value& value = plan.graph.values[in];
    // The decode program creates the buffers of caches itself (programs/evaluate.cpp).
    if (is_cache(value)) {
      plan.inputs.push_back(BufferId());
      continue;
    }
    plan.inputs.push_back(zero.memory.add(Holds::input, "decode." + value.name, value.type.dtype,
                                          value.type.shape.numel(plan.graph.bound), Tier::device));
  }
  const TensorType& logits = plan.graph.type(plan.graph.outputs[0].value);
  plan.logits = zero.memory.add(Holds::result, "decode.logits", logits.dtype, logits.shape.numel(1),
                                Tier::device);
  return plan;
}

Plan compile_generation(const Graph& forward, const Config& config, const DecodeRequest& request,
                        int rank, const Mesh& mesh, const Machine& machine, bool verify_passes) {
  Plan plan;
  std::vector<ParamSpec> params;
  for (const Parameter& p : forward.params)
    params.push_back({p.name, forward.type(p.value).shape.numel(1)});
  plan.zero = make_zero_plan(config, params, rank, mesh, machine, false);
  plan.decode = begin_decode(forward, config.compute, request, plan.zero);
  for (ProgramKind kind : {ProgramKind::refresh, ProgramKind::decode}) plan.programs[kind];
  // Choices are not searched, because a program without a backward part keeps no activations that
  // could be recomputed.
  plan.choices.prefetch = config.zero.overlap_comm;
  make_programs(plan, config, machine, {.choices = plan.choices, .verify_passes = verify_passes});
  check_budget(plan.zero.memory.buffers, plan.memory, config.memory_budget);
  Hash128 hash;
  hash.update(plan.decode->graph.print());
  hash_settings(plan, config, hash);
  plan.hash = hash.hex();
  return plan;
}

}  // namespace ds
