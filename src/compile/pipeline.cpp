#include "compile/pipeline.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string_view>

#include "compile/decode_plan.h"
#include "compile/finish_program.h"
#include "compile/lower.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/suggest.h"
#include "core/graph/custom_op.h"
#include "core/graph/ops.h"
#include "core/graph/param_slice.h"
#include "core/program/builder.h"
#include "core/program/mesh.h"
#include "optim/optimizer.h"
#include "passes/cse.h"
#include "passes/fused_head.h"
#include "passes/fusion.h"
#include "passes/loss_weight.h"
#include "passes/precision.h"
#include "passes/recompute.h"
#include "zero/compressed_update.h"
#include "zero/init.h"
#include "zero/loss_and_norm.h"
#include "zero/matrix_update.h"
#include "zero/row_tables.h"
#include "zero/step_buffers.h"
#include "zero/update.h"

namespace ds {

namespace {

class Compiler {
 public:
  // options: of every program.
  Compiler(Plan& plan, const Config& config, const Machine& machine, const FinishOptions& options)
      : plan_(plan), config_(config), machine_(machine), options_(options) {}

  void run() {
    init();
    refresh();
    step(plan_.step, StepForm::reduced);
    if (const Optimizer& optimizer = optimizer_of(config_.optimizer); optimizer.compresses()) {
      for (StepForm form : optimizer.compression->forms) step(plan_.other_forms[form], form);
    }
    std::vector<std::pair<ValueId, BufferId>> evaluated{
        {plan_.eval_graph.outputs[0].value, plan_.eval_loss}};
    if (plan_.eval_weight.exists())
      evaluated.emplace_back(plan_.eval_graph.loss_weight, plan_.eval_weight);
    evaluate(plan_.eval, Phase::eval, plan_.eval_graph, evaluated);
    if (plan_.logits.exists()) {
      evaluate(plan_.infer, Phase::infer, plan_.graph,
               {{plan_.graph.outputs[1].value, plan_.logits}});
    }
    if (plan_.decode) {
      finish_decode(*plan_.decode, plan_.zero, config_, machine_, options_);
    }
  }

 private:
  void finish(ProgramBuilder& builder, const StepBuffers& buffers, Program& out) {
    out = builder.take();
    finish_program(out, plan_.zero, config_, buffers, machine_, options_);
  }

  void init() {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan_.zero, "init", plan_.graph.bound, buffers);
    emit_init(builder, plan_.zero, plan_.graph.params);
    finish(builder, buffers, plan_.init);
  }

  void refresh() {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan_.zero, "refresh", plan_.graph.bound, buffers);
    emit_refresh(builder, plan_.zero);
    finish(builder, buffers, plan_.refresh);
  }

  void step(Program& out, StepForm form) {
    int64_t written_out = plan_.schedule.empty() ? plan_.written_out : config_.accumulation;
    for (const WrittenOut& way : ways_to_write(config_.accumulation, written_out)) {
      if (write_step(out, form, static_cast<int32_t>(way.micros), way.repeated)) return;
    }
  }

  bool write_step(Program& out, StepForm form, int32_t micros, int32_t repeated) {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan_.zero, form_name(form), plan_.graph.bound, buffers);
    const bool reduced = form == StepForm::reduced;
    if (!reduced || plan_.zero.compression.on()) {
      Tier near = builder.buffer(plan_.zero.norms).tier;
      buffers.own_norms =
          builder.transient("own_norms", DS_DTYPE_F64, own_norms_of(plan_.zero), near);
    }
    Lowering lowering(plan_.graph, plan_.zero, plan_.zero.inputs, builder, buffers);
    std::vector<Action> schedule =
        plan_.schedule.empty() ? accumulate_in_turn(micros) : plan_.schedule;
    check_schedule(schedule, micros);
    lowering.run(schedule, micros);
    emit_losses(builder, plan_.zero);
    if (reduced) {
      emit_update(builder, plan_.zero, config_, buffers.own_norms);
    } else {
      emit_compressed_update(builder, plan_.zero, config_, form, buffers.own_norms);
    }
    out = builder.take();
    FinishOptions options = options_;
    options.repeated = repeated;
    return finish_program(out, plan_.zero, config_, buffers, machine_, options);
  }

  void evaluate(Program& out, Phase phase, const Graph& graph,
                const std::vector<std::pair<ValueId, BufferId>>& wanted) {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan_.zero, phase_name(phase), graph.bound, buffers);
    Lowering(graph, plan_.zero, plan_.zero.inputs, builder, buffers).evaluate(phase, wanted);
    finish(builder, buffers, out);
  }

  Plan& plan_;
  const Config& config_;
  const Machine& machine_;
  FinishOptions options_;
};

void add_engine_buffers(Plan& plan, const Config& config, bool infer) {
  for (ValueId in : plan.graph.inputs) {
    const Value& value = plan.graph.values[in];
    int64_t numel = value.type.shape.numel(plan.graph.bound) * config.accumulation;
    plan.zero.inputs.push_back(
        plan.zero.add(Holds::input, "input." + value.name, value.type.dtype, numel, Tier::device));
  }
  DType loss = plan.graph.type(plan.graph.outputs[0].value).dtype;
  const bool weighted = plan.graph.loss_weight.exists();
  if (weighted) plan.zero.loss_unit = loss_unit(plan.graph);
  const int64_t numbers = weighted ? 2 * config.accumulation : config.accumulation;
  plan.zero.loss = plan.zero.add(Holds::loss, "loss", loss, numbers, Tier::device);
  plan.eval_loss = plan.zero.add(Holds::result, "eval_loss", loss, 1, Tier::device);
  if (weighted)
    plan.eval_weight = plan.zero.add(Holds::result, "eval_weight", loss, 1, Tier::device);
  if (infer && plan.graph.outputs.size() > 1) {
    const TensorType& type = plan.graph.type(plan.graph.outputs[1].value);
    plan.logits = plan.zero.add(Holds::result, "infer.out", type.dtype,
                                type.shape.numel(plan.graph.bound), Tier::device);
  }
}

// Callbacks run on the thread that is inside the call (ds.h, "Threads").
void check_callbacks(const Graph& graph, const Config& config) {
  if (config.device == "cpu") return;
  for (const Node& node : graph.nodes) {
    if (!node.custom) continue;
    raise(DS_ERROR_UNSUPPORTED,
          "custom operation '{}' of value %{} needs device cpu, got '{}', whose threads may not "
          "call back",
          node.custom->name, graph.values[node.out[0]].name, config.device);
  }
}

void check_training_graph(const Graph& graph) {
  require(!graph.outputs.empty(), "graph '{}' must have an output: its loss", graph.name);
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

// A program writes results of nodes out: the loss, or output 1, that is an input or a parameter
// becomes one.
void copy_plain_outputs(Graph& graph) {
  for (size_t i = 0; i < std::min<size_t>(2, graph.outputs.size()); ++i) {
    const Value& value = graph.values[graph.outputs[i].value];
    if (value.producer.exists()) continue;
    graph.outputs[i].value = graph.add("cast", {graph.outputs[i].value},
                                       {{"dtype", std::string(dtype_name(value.type.dtype))}});
  }
}

// From so many words on a head is worth making twice: the logits are four blocks and more.
constexpr int64_t kFewestHeadWords = 4096;

// The forward part in its final types. A fused head costs its product once more in a backward part
// and saves the logits, which are twice as large in f32.
Graph forward_part(const Graph& forward, const Config& config, bool differentiated) {
  Graph graph = forward;
  set_precision(graph, config.compute);
  if (config.autocast.enabled) autocast(graph, parse_dtype(config.autocast.dtype));
  // The engine reads losses as f32, and what ds_infer returns as any type that f32 holds.
  cast_output(graph, 0);
  if (graph.outputs.size() > 1 && graph.type(graph.outputs[1].value).dtype == DS_DTYPE_F64)
    cast_output(graph, 1);
  fuse(graph);
  if (config.fused_head == "always") fuse_head(graph, 0);
  bool pays = !differentiated || config.compute == DS_DTYPE_F32;
  if (config.fused_head == "auto" && pays) fuse_head(graph, kFewestHeadWords);
  copy_plain_outputs(graph);
  if (config.by_tokens()) weigh_by_targets(graph);
  return graph;
}

// What ranks must do alike. Between two collectives each may do as much as its part needs, also
// where what is repeated begins or ends.
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

std::string plan_hash(const Plan& plan, const Config& config) {
  Hash128 hash;
  hash.update(plan.graph.print());
  hash.update(config.shared_text());
  if (plan.decode) hash.update(plan.decode->graph.print());
  for (const Parameter& p : plan.graph.params) {
    for (const std::string& axis : p.reduced_over)
      hash.update(fmt::format("{} over {}", p.name, axis));
  }
  hash_collectives(plan.step, hash);
  for (const auto& [form, program] : plan.other_forms) hash_collectives(program, hash);
  return hash.hex();
}

}  // namespace

const Program& step_of(const Plan& plan, StepForm form) {
  return form == StepForm::reduced ? plan.step : plan.other_forms.at(form);
}

std::string print_steps(const Plan& plan) {
  std::string text = plan.step.print();
  for (const auto& [form, program] : plan.other_forms) text += program.print();
  return text;
}

MemoryPlan memory_plan(const Plan& plan) {
  MemoryPlan memory;
  for (const auto& [form, program] : plan.other_forms) memory.add(program);
  for (const Program* p : {&plan.init, &plan.refresh, &plan.step, &plan.eval, &plan.infer})
    memory.add(*p);
  if (plan.decode) memory.add(plan.decode->program);
  return memory;
}

namespace {

// What this rank holds of a parameter must be what its graph computes with, on this mesh.
void check_slice(const Parameter& param, const Shape& local, const Config& config,
                 const Mesh& mesh) {
  const ParamSlice& slice = *param.slice;
  slice.check(param.name);
  std::vector<int64_t> shape = slice.local_shape();
  Shape held(std::vector<Dim>(shape.begin(), shape.end()));
  require(held == local, "the slice of parameter '{}' has shape {}, the graph {}",
          TensorName(param.name), held.text(), local.text());
  std::vector<std::string_view> data = mesh.data_axes();
  for (const std::string& axis : slice.axes) {
    bool known = std::any_of(mesh.axes().begin(), mesh.axes().end(),
                             [&](const Mesh::Axis& a) { return a.name == axis; });
    require(known, "parameter '{}' is cut over '{}', the mesh is {}", TensorName(param.name), axis,
            mesh.name());
    // Norms and skips are agreed along `data`.
    if (config.gradient_clipping > 0 && std::find(data.begin(), data.end(), axis) == data.end()) {
      raise(DS_ERROR_UNSUPPORTED,
            "parameter '{}' is cut over '{}', whose ranks have norms of their own: "
            "gradient_clipping must be "
            "0, got {}",
            TensorName(param.name), axis, config.gradient_clipping);
    }
  }
}

// Whether the kernels of a device are those of this machine's threads.
bool runs_host_kernels(std::string_view device) {
  return std::find(std::begin(kDevices), std::end(kDevices), device) != std::end(kDevices);
}

// The rest of a plan of which graph is the forward part, and buffers and frozen parameters are
// known.
void compile_programs(Plan& plan, const Config& config, const Machine& machine,
                      bool verify_passes) {
  plan.notes = plan.zero.notes;
  if (optimizer_of(config.optimizer).compresses())
    plan.notes.push_back(compression_note(plan.zero, config));
  for (ParamId p : plan.graph.params.ids())
    plan.graph.params[p].frozen = plan.zero.trained.frozen[p] != 0;
  // On a device 16-bit logits are kept, but within the head, where their rows are aligned whatever
  // the number of words: tensor cores need that (docs/adr/0055).
  if (config.fused_head == "auto" && config.compute != DS_DTYPE_F32 &&
      !runs_host_kernels(config.device))
    fuse_head(plan.graph, kFewestHeadWords, true);
  differentiate(plan.graph, weighted_loss(plan.graph));
  if (config.scales_loss()) scale_loss(plan.graph);
  eliminate_common_subexpressions(plan.graph);
  if (config.recompute == "cheap") recompute_cheap(plan.graph);
  if (config.recompute == "layers") recompute_layers(plan.graph, config.recompute_num_layers);
  const bool overlap = config.zero.overlap_comm;
  auto compile = [&](bool prefetch, bool late_reuse) {
    Compiler(plan, config, machine,
             {.prefetch = prefetch, .late_reuse = late_reuse, .verify_passes = verify_passes})
        .run();
    return fits(memory_plan(plan), config.memory_budget);
  };
  bool fit = compile(overlap, overlap);
  if (!fit && overlap && plan.step.separate) {
    fit = compile(true, false);
    if (fit)
      plan.notes.push_back("transfers wait for the range of the one before to fit memory_budget");
  }
  if (!fit && overlap) {
    fit = compile(false, false);
    plan.notes.push_back("prefetch is off to fit memory_budget");
  }
  if (config.recompute == "none" && !fit) {
    const Graph kept = plan.graph;
    recompute_cheap(plan.graph);
    fit = compile(false, false);
    plan.notes.push_back("cheap activations are computed again to fit memory_budget");
    if (!fit) {
      plan.graph = kept;
      recompute_layers(plan.graph, 1);
      compile(false, false);
      plan.notes.back() = "the activations of each layer are computed again to fit memory_budget";
    }
  }
  if (plan.within_budget) check_budget(plan.zero.buffers, memory_plan(plan), config.memory_budget);
  plan.hash = plan_hash(plan, config);
}

}  // namespace

namespace {

// Parameters that patterns of names mean, '*' and '?' as in file names. Throws DS_ERROR_CONFIG
// naming `key` for a pattern that means none.
std::vector<ParamId> match(const std::string& key, const std::vector<std::string>& patterns,
                           const IdVector<ParamId, std::string>& names) {
  std::vector<ParamId> out;
  for (const std::string& pattern : patterns) {
    size_t before = out.size();
    for (ParamId p : names.ids()) {
      if (fnmatch(pattern.c_str(), names[p].c_str(), 0) == 0) out.push_back(p);
    }
    if (out.size() > before) continue;
    std::string near = suggest(pattern, names);
    raise(DS_ERROR_CONFIG, "{}: '{}' means none of {} parameters{}", KeyName(key), pattern,
          names.size(), near.empty() ? near : fmt::format("; did you mean '{}'?", near));
  }
  return out;
}

}  // namespace

IdVector<ParamId, char> frozen_by_name(const Config& config,
                                       const IdVector<ParamId, std::string>& names) {
  IdVector<ParamId, char> frozen(names.size(), 0);
  for (ParamId p : match("frozen_parameters", config.frozen, names)) frozen[p] = 1;
  return frozen;
}

IdVector<ParamId, int32_t> groups_by_name(const Config& config,
                                          const IdVector<ParamId, std::string>& names,
                                          const IdVector<ParamId, size_t>& dims) {
  IdVector<ParamId, int32_t> groups(names.size(), 0);
  for (size_t i = 0; i < config.optimizer.groups.size(); ++i) {
    const auto group = static_cast<int32_t>(i + 1);
    if (config.optimizer.groups[i].norms_and_biases) {
      for (ParamId p : names.ids())
        groups[p] = groups[p] == 0 && dims.at(p) < 2 ? group : groups[p];
      continue;
    }
    const std::string key = fmt::format("optimizer.param_groups[{}].params", i);
    for (ParamId p : match(key, config.optimizer.groups[i].params, names)) {
      if (groups[p] != 0 && groups[p] != group)
        raise(DS_ERROR_CONFIG, "{}: parameter '{}' is in optimizer.param_groups[{}], too",
              KeyName(key), TensorName(names[p]), groups[p] - 1);
      groups[p] = group;
    }
  }
  return groups;
}

namespace {

// What a mesh cuts comes back from a checkpoint in runs that are no blocks, and has no whole
// matrix.
void check_sliced(const OptimizerConfig& optimizer, const Parameter& param, const ParamSpec& spec) {
  if (!param.slice || !param.slice->cut()) return;
  const bool codes = optimizer.states == DS_DTYPE_U8;
  if (!codes && spec.rows == 0) return;
  raise(DS_ERROR_UNSUPPORTED, "{}: {} of a parameter that the mesh cuts, '{}', are unsupported",
        KeyName(codes ? "optimizer.states" : "optimizer.type"),
        codes ? "8-bit states" : "matrices of Muon", TensorName(spec.name));
}

}  // namespace

Plan compile_plan(const Graph& forward, const Config& config, int rank, const Mesh& mesh,
                  const Machine& machine, bool verify_passes, const PlanPrograms& programs) {
  check_training_graph(forward);
  check_callbacks(forward, config);
  Plan plan;
  Graph evaluated = forward;
  if (programs.evaluated.exists()) evaluated.outputs[0].value = programs.evaluated;
  plan.eval_graph = forward_part(evaluated, config, false);
  eliminate_common_subexpressions(plan.eval_graph);
  plan.graph = forward_part(forward, config, true);
  IdVector<ParamId, std::string> names;
  IdVector<ParamId, size_t> dims;
  for (const Parameter& p : plan.graph.params) {
    names.push_back(p.name);
    dims.push_back(plan.graph.type(p.value).shape.rank());
  }
  const IdVector<ParamId, char> frozen = frozen_by_name(config, names);
  const IdVector<ParamId, int32_t> groups = groups_by_name(config, names, dims);
  IdVector<ParamId, ParamSpec> params;
  for (ParamId p : names.ids()) {
    int64_t numel = plan.graph.type(plan.graph.params[p].value).shape.numel(plan.graph.bound);
    params.push_back({names[p], numel, frozen[p] != 0});
    params.back().group = groups[p];
    params.back().reduced_over = plan.graph.params[p].reduced_over;
    const Parameter& param = plan.graph.params[p];
    if (param.slice) check_slice(param, plan.graph.type(param.value).shape, config, mesh);
    const Shape& shape = plan.graph.type(plan.graph.params[p].value).shape;
    if (programs.row_granules && shape.rank() == 2) params.back().granule = shape[1].extent;
    set_matrix(config.optimizer, params.back(), shape);
    check_sliced(config.optimizer, param, params.back());
  }
  plan.zero = make_zero_plan(config, std::move(params), rank, mesh, machine, true,
                             find_row_tables(plan.graph));
  if (std::string note = matrix_updates_note(plan.zero); !note.empty())
    plan.zero.notes.push_back(note);
  plan.written_out = programs.written_out;
  plan.schedule = programs.schedule;
  plan.within_budget = programs.within_budget;
  add_engine_buffers(plan, config, programs.infer);
  if (programs.decode.positions > 0) {
    plan.decode = begin_decode(forward, config.compute, programs.decode, plan.zero);
  }
  compile_programs(plan, config, machine, verify_passes);
  return plan;
}

Plan recompile_plan(const Plan& plan, const Graph& forward, const Config& config,
                    const Machine& machine, const TrainedParams& trained, bool verify_passes) {
  Plan next = plan;
  set_trained(next.zero, config, trained);
  next.graph = forward_part(forward, config, true);
  compile_programs(next, config, machine, verify_passes);
  return next;
}

}  // namespace ds
