// The compiler of engines with a graph. The forward part gets its final types and is rewritten. It
// determines the parameters, ZeRO's layout and the persistent buffers, which do not depend on
// choices. Then the graph is differentiated. For one choice after the other (search.h), the graph
// is changed to recompute activations and all programs are compiled, until they fit memory_budget.
//
// Invariant. All ranks must have the same sequence of collectives and the same choices. The plan
// hash covers both, and ranks compare it before the engine runs.
#include "compile/pipeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compile/decode_plan.h"
#include "compile/named_params.h"
#include "compile/programs/programs.h"
#include "compile/search.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/graph/custom_op.h"
#include "core/graph/ops.h"
#include "core/graph/param_slice.h"
#include "core/graph/readers.h"
#include "core/program/choices.h"
#include "core/program/mesh.h"
#include "nn/adapter_keys.h"
#include "optim/optimizer.h"
#include "passes/adapters.h"
#include "passes/cse.h"
#include "passes/fusion_rules.h"
#include "passes/keys.h"
#include "passes/loss_weight.h"
#include "passes/precision.h"
#include "passes/recompute.h"
#include "passes/rewrite.h"
#include "passes/token_losses.h"
#include "update/loss_and_norm.h"
#include "update/matrix_update.h"
#include "update/onebit/adam.h"
#include "zero/policy.h"
#include "zero/row_tables.h"

namespace ds {

namespace {

// Adds the buffers that a graph needs in addition to its parameters: inputs and losses for all
// micro-steps of a step, and the results of evaluation and inference. If the loss is a mean over
// tokens, the weights of micro-steps follow their losses.
void add_engine_buffers(Plan& plan, int64_t accumulation, bool infer) {
  for (ValueId in : plan.graph.inputs) {
    const Value& value = plan.graph.values[in];
    int64_t numel = value.type.shape.numel(plan.graph.bound) * accumulation;
    plan.zero.memory.inputs.push_back(plan.zero.memory.add(Holds::input, "input." + value.name,
                                                           value.type.dtype, numel, Tier::device));
  }
  DType loss = plan.graph.type(plan.graph.outputs[0].value).dtype;
  const bool weighted = plan.graph.loss_weight.exists();
  if (weighted) plan.zero.memory.loss_unit = loss_unit(plan.graph);
  const int64_t numbers = weighted ? 2 * accumulation : accumulation;
  plan.zero.memory.loss = plan.zero.memory.add(Holds::loss, "loss", loss, numbers, Tier::device);
  plan.zero.memory.eval_loss =
      plan.zero.memory.add(Holds::result, "eval_loss", loss, 1, Tier::device);
  if (weighted)
    plan.zero.memory.eval_weight =
        plan.zero.memory.add(Holds::result, "eval_weight", loss, 1, Tier::device);
  if (const ValueId rewards = rewards_of(plan.graph); rewards.exists()) {
    const int64_t count = plan.graph.type(rewards).shape.numel(1);
    plan.zero.memory.rewards =
        plan.zero.memory.add(Holds::result, "rewards", loss, count * accumulation, Tier::device);
    plan.zero.memory.eval_rewards =
        plan.zero.memory.add(Holds::result, "eval_rewards", loss, count, Tier::device);
  }
  if (infer && plan.graph.outputs.size() > 1) {
    const TensorType& type = plan.graph.type(plan.graph.outputs[1].value);
    plan.zero.memory.logits = plan.zero.memory.add(
        Holds::result, "infer.out", type.dtype, type.shape.numel(plan.graph.bound), Tier::device);
  }
}

// Callbacks must run on the thread that called libds (ds.h, "Threads"), which only device "cpu"
// guarantees.
void check_callbacks(const Graph& graph, const std::string& device) {
  if (device == "cpu") return;
  for (const Node& node : graph.nodes) {
    if (!node.custom) continue;
    raise(DS_ERROR_UNSUPPORTED,
          "custom operation '{}' of value %{} needs device cpu, got '{}', whose threads may not "
          "call back",
          node.custom->name, graph.values[node.out[0]].name, device);
  }
}

void check_training_graph(const Graph& graph) {
  require(!graph.outputs.empty(), "graph '{}' must have an output, the loss, got none", graph.name);
  const TensorType& loss = graph.type(graph.outputs[0].value);
  auto integers = [](const TensorType& type) {
    return type.dtype == DS_DTYPE_I32 || type.dtype == DS_DTYPE_I64 || type.dtype == DS_DTYPE_U8;
  };
  require(loss.shape.rank() == 0 && !integers(loss),
          "output 0 of graph '{}' must be a scalar loss, got {}", graph.name, loss.text());
  if (graph.outputs.size() > 1) {
    const TensorType& type = graph.type(graph.outputs[1].value);
    require(!integers(type), "output 1 of graph '{}' must be of a floating type, got {}",
            graph.name, type.text());
  }
  require(!graph.params.empty(), "graph '{}' must have a parameter", graph.name);
}

// Programs can write only results of nodes to the buffers of outputs. If the loss or output 1 is an
// input or a parameter, it is replaced by a cast to its own type, which is the result of a node.
void copy_plain_outputs(Graph& graph) {
  for (size_t i = 0; i < std::min<size_t>(2, graph.outputs.size()); ++i) {
    const Value& value = graph.values[graph.outputs[i].value];
    if (value.producer.exists()) continue;
    graph.outputs[i].value = graph.add("cast", {graph.outputs[i].value},
                                       {{"dtype", std::string(dtype_name(value.type.dtype))}});
  }
}

// The smallest vocabulary for which a fused head pays off: the logits then have four blocks or
// more.
constexpr int64_t kFewestHeadWords = 4096;

// Returns the forward part in its final types. A fused head computes its product again in the
// backward part but does not store the logits, which are twice as large in f32. "auto" fuses the
// head in f32 and in evaluation, where this pays off.
Graph forward_part(const Graph& forward, const Config& config, bool differentiated) {
  Graph graph = forward;
  set_precision(graph, config.compute);
  if (config.autocast.enabled) autocast(graph, parse_dtype(config.autocast.dtype));
  // The engine reads the loss as f32, and output 1, which ds_infer returns, as any type that f32
  // can hold.
  cast_output(graph, 0);
  if (graph.outputs.size() > 1 && graph.type(graph.outputs[1].value).dtype == DS_DTYPE_F64)
    cast_output(graph, 1);
  rewrite(graph, gate_rules());
  if (config.fused_head == "always") rewrite(graph, head_rules(0));
  bool pays = !differentiated || config.compute == DS_DTYPE_F32;
  if (config.fused_head == "auto" && pays) rewrite(graph, head_rules(kFewestHeadWords));
  if (config.get<InferKeys>().token_losses()) infer_token_losses(graph);
  copy_plain_outputs(graph);
  if (config.by_tokens()) weigh_by_targets(graph);
  return graph;
}

// Hashes the part of a program that must be equal on all ranks: the collectives, and which of them
// are repeated. Ranks may differ in the instructions between two collectives and at the ends of the
// repeated stretch.
void hash_collectives(const Program& program, Hash128& hash) {
  const Repeat& repeat = program.repeat;
  for (InstrId i : program.instrs.ids()) {
    if (repeat.rounds > 1 && i == repeat.begin)
      hash.update(fmt::format("repeat {} {}", repeat.rounds, repeat.micros));
    if (repeat.rounds > 1 && i == repeat.end) hash.update("to here");
    const Instr& in = program.instrs[i];
    if (in.queue != Queue::comm) continue;
    hash.update(fmt::format("{} {} {}", in.def->name, in.group.name(), in.bucket));
    for (const Operand& operand : in.operands) hash.update(operand.type.text());
  }
}

// Programs other than steps are compiled from the same graphs and configuration, so only the
// collectives of steps are hashed.
std::string plan_hash(const Plan& plan, const Config& config) {
  Hash128 hash;
  hash.update(plan.graph.print());
  hash_settings(plan, config, hash);
  if (plan.decode) hash.update(plan.decode->graph.print());
  for (const Parameter& p : plan.graph.params) {
    for (const std::string& axis : p.reduced_over)
      hash.update(fmt::format("{} over {}", p.name, axis));
  }
  for (const auto& [key, program] : plan.programs) {
    if (key.kind == ProgramKind::step) hash_collectives(program, hash);
  }
  return hash.hex();
}

// Checks that the slice that this rank holds of a parameter has the shape that the parameter has in
// the graph, and that the parameter is cut over axes of this mesh.
void check_slice(const Parameter& param, const Shape& local, double gradient_clipping,
                 const Mesh& mesh) {
  const ParamSlice& slice = *param.slice;
  slice.check(param.name);
  std::vector<int64_t> shape = slice.local_shape();
  Shape held(std::vector<Dim>(shape.begin(), shape.end()));
  require(held == local, "the slice of parameter '{}' has shape {}, but {} in the graph",
          TensorName(param.name), held.text(), local.text());
  std::vector<std::string_view> data = mesh.data_axes();
  for (const std::string& axis : slice.axes) {
    bool known = std::any_of(mesh.axes().begin(), mesh.axes().end(),
                             [&](const Mesh::Axis& a) { return a.name == axis; });
    require(known, "parameter '{}' is cut over '{}', which is not an axis of mesh {}",
            TensorName(param.name), axis, mesh.name());
    // Ranks agree on norms and on skipped steps only along `data`.
    if (gradient_clipping > 0 && std::find(data.begin(), data.end(), axis) == data.end()) {
      raise(DS_ERROR_UNSUPPORTED,
            "parameter '{}' is cut over '{}', whose ranks compute separate norms: "
            "gradient_clipping must be 0, got {}",
            TensorName(param.name), axis, gradient_clipping);
    }
  }
}

// Returns whether the kernels of a device run on threads of the CPU.
bool runs_host_kernels(std::string_view device) {
  return std::find(std::begin(kDevices), std::end(kDevices), device) != std::end(kDevices);
}

// Compiles the programs of a plan. The plan must have its forward part, its persistent buffers and
// the set of trained parameters.
void compile_programs(Plan& plan, const Config& config, const Machine& machine,
                      bool verify_passes) {
  plan.notes = plan.zero.notes;
  if (optimizer_of(config.optimizer).compresses())
    plan.notes.push_back(compression_note(plan.zero, config.optimizer));
  for (ParamId p : plan.graph.params.ids())
    plan.graph.params[p].frozen = plan.zero.trained.frozen[p] != 0;
  // On a GPU, 16-bit logits are stored, but inside a fused head, whose rows are aligned for any
  // size of the vocabulary, as tensor cores need (docs/adr/0055).
  if (config.fused_head == "auto" && config.compute != DS_DTYPE_F32 &&
      !runs_host_kernels(config.device))
    rewrite(plan.graph, head_rules(kFewestHeadWords, true));
  differentiate(plan.graph, weighted_loss(plan.graph));
  if (config.scales_loss()) scale_loss(plan.graph);
  eliminate_common_subexpressions(plan.graph);
  // The graph before it is changed to recompute activations.
  std::optional<Graph> plain;
  const std::vector<Choices> candidates = choices_by_memory(config);
  plan.choice = search(candidates, plan.asked.first_choice, [&](const Choices& choices) {
    if (choices.recompute != "none" && plain) plan.graph = *plain;
    if (choices.recompute != "none" && !plain) plain = plan.graph;
    if (choices.recompute == "cheap") recompute_cheap(plan.graph);
    if (choices.recompute == "layers") recompute_layers(plan.graph, choices.recompute_layers);
    make_programs(plan, config, machine, {.choices = choices, .verify_passes = verify_passes});
    return fits(plan.memory, config.memory_budget);
  });
  plan.choices = candidates[plan.choice];
  for (std::string& note : notes_of(plan.choices, candidates.front()))
    plan.notes.push_back(std::move(note));
  if (plan.asked.within_budget)
    check_budget(plan.zero.memory.buffers, plan.memory, config.memory_budget);
  plan.hash = plan_hash(plan, config);
}

// Throws if the states of a parameter that the mesh cuts cannot be cut in the same way: 8-bit
// states need whole blocks from a checkpoint, and Muon needs whole matrices.
void check_sliced(const OptimizerConfig& optimizer, const Parameter& param, const ParamSpec& spec) {
  if (!param.slice || !param.slice->cut()) return;
  const bool codes = optimizer.states == DS_DTYPE_U8;
  if (!codes && spec.rows == 0) return;
  raise(DS_ERROR_UNSUPPORTED, "{}: {} are not supported for parameter '{}', which the mesh cuts",
        KeyName(codes ? "optimizer.states" : "optimizer.type"),
        codes ? "8-bit states" : "matrices of Muon", TensorName(spec.name));
}

// Adds the keys of the programs of an engine with a graph.
void add_keys(Plan& plan, const Optimizer& optimizer) {
  for (ProgramKind kind :
       {ProgramKind::init, ProgramKind::refresh, ProgramKind::step, ProgramKind::eval})
    plan.programs[kind];
  if (optimizer.compresses()) {
    for (StepForm form : optimizer.compression->forms) plan.programs[form];
  }
  if (plan.zero.memory.logits.exists()) plan.programs[ProgramKind::infer];
  for (const auto& [number, graphs] : plan.other_adapters) {
    plan.programs[{ProgramKind::eval, number}];
    if (plan.zero.memory.logits.exists()) plan.programs[{ProgramKind::infer, number}];
  }
  if (plan.decode) plan.programs[ProgramKind::decode];
}

}  // namespace

namespace {

// Returns the forward part that evaluation runs.
Graph evaluated_part(Graph forward, const Config& config, const PlanPrograms& programs) {
  if (programs.evaluated.exists()) forward.outputs[0].value = programs.evaluated;
  Graph graph = forward_part(forward, config, false);
  eliminate_common_subexpressions(graph);
  return graph;
}

// Adds the graphs that evaluation and inference run with other choices than the own adapter.
void add_other_adapters(Plan& plan, const Graph& base, const Config& config,
                        const PlanPrograms& programs) {
  const AdapterKeys& keys = config.get<AdapterKeys>();
  for (int number : adapter_numbers(keys)) {
    if (number == 0) continue;
    const Graph forward = add_adapters(base, keys, number);
    plan.other_adapters[number] = {evaluated_part(forward, config, programs),
                                   forward_part(forward, config, true)};
  }
}

}  // namespace

Plan compile_plan(const Graph& base, const Config& config, int rank, const Mesh& mesh,
                  const Machine& machine, bool verify_passes, const PlanPrograms& programs) {
  check_training_graph(base);
  const Graph forward = add_adapters(base, config.get<AdapterKeys>());
  check_callbacks(forward, config.device);
  if (config.skip_missing)
    raise(DS_ERROR_CONFIG,
          "{}: \"skip\" is for delegate mode; a graph has a gradient of every parameter",
          KeyName("missing_gradients"));
  Plan plan;
  plan.eval_graph = evaluated_part(forward, config, programs);
  add_other_adapters(plan, base, config, programs);
  plan.graph = forward_part(forward, config, true);
  IdVector<ParamId, std::string> names;
  IdVector<ParamId, size_t> dims;
  for (const Parameter& p : plan.graph.params) {
    names.push_back(p.name);
    dims.push_back(plan.graph.type(p.value).shape.rank());
  }
  const IdVector<ParamId, char> frozen = frozen_by_name(config.frozen, names);
  const IdVector<ParamId, int32_t> groups = groups_by_name(config.optimizer, names, dims);
  IdVector<ParamId, ParamSpec> params;
  for (ParamId p : names.ids()) {
    int64_t numel = plan.graph.type(plan.graph.params[p].value).shape.numel(plan.graph.bound);
    params.push_back({names[p], numel, frozen[p] != 0 || plan.graph.params[p].frozen});
    params.back().group = groups[p];
    params.back().reduced_over = plan.graph.params[p].reduced_over;
    const Parameter& param = plan.graph.params[p];
    if (param.slice)
      check_slice(param, plan.graph.type(param.value).shape, config.gradient_clipping, mesh);
    const Shape& shape = plan.graph.type(plan.graph.params[p].value).shape;
    if (programs.row_granules && shape.rank() == 2) params.back().granule = shape[1].extent;
    set_matrix(config.optimizer, params.back(), shape);
    check_sliced(config.optimizer, param, params.back());
  }
  plan.zero = make_zero_plan(config, std::move(params), rank, mesh, machine, true,
                             find_row_tables(plan.graph));
  if (std::string note = matrix_updates_note(plan.zero); !note.empty())
    plan.zero.notes.push_back(note);
  plan.asked = programs;
  add_engine_buffers(plan, config.accumulation, programs.infer);
  if (programs.decode.positions > 0) {
    plan.decode = begin_decode(forward, config.compute, programs.decode, plan.zero);
  }
  add_keys(plan, optimizer_of(config.optimizer));
  compile_programs(plan, config, machine, verify_passes);
  return plan;
}

Plan recompile_plan(const Plan& plan, const Graph& forward, const Config& config,
                    const Machine& machine, const TrainedParams& trained, bool verify_passes,
                    size_t first_choice) {
  Plan next = plan;
  next.asked.first_choice = first_choice;
  set_trained(next.zero, config.optimizer, trained);
  next.graph = forward_part(add_adapters(forward, config.get<AdapterKeys>()), config, true);
  compile_programs(next, config, machine, verify_passes);
  return next;
}

}  // namespace ds
