#include "compile/pipeline.h"

#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "compile/decode_plan.h"
#include "compile/lower.h"
#include "compile/simulate.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/suggest.h"
#include "core/graph/ops.h"
#include "offload/tiers.h"
#include "optim/optimizer.h"
#include "passes/cse.h"
#include "passes/fused_head.h"
#include "passes/fusion.h"
#include "passes/precision.h"
#include "passes/recompute.h"
#include "passes/schedule.h"
#include "zero/init.h"
#include "zero/loss_and_norm.h"
#include "zero/ranges.h"
#include "zero/reduce.h"
#include "zero/row_tables.h"
#include "zero/update.h"

namespace ds {

// Where the order of gathers comes back only after two or three micro-steps, so many are repeated.
std::vector<WrittenOut> ways_to_write(int64_t accumulation, int64_t written_out) {
  // Micro-steps beside those that are repeated and their first repetition: the first two, in which the order
  // of gathers settles, and the last two.
  constexpr int64_t kAround = 4;
  std::vector<WrittenOut> ways;
  for (int32_t repeated : {1, 2, 3}) {
    int64_t few = kAround + 2 * repeated;
    few += (accumulation - few) % repeated;
    if (accumulation <= std::max(written_out, few)) break;
    ways.push_back({few, repeated});
  }
  ways.push_back({accumulation, 1});
  return ways;
}

bool finish_program(Program& program, const ZeroPlan& plan, const Config& config, const StepBuffers& buffers,
                    const Machine& machine, const FinishOptions& options) {
  insert_gathers(program, plan, config.zero, buffers);
  if (!buffers.grads.empty()) insert_reductions(program, plan, options.prefetch, buffers);
  // A sub-group of one f32 state is the unit of host memory for states on files.
  int64_t unit = update_group(config.zero) * size_of(DS_DTYPE_F32);
  int64_t resident = config.zero.buffer_count * unit;
  insert_tier_moves(program, {.emulate = config.emulate_tiers,
                              .file_alignment = machine.file_alignment,
                              .resident_bytes = options.prefetch ? resident : 0,
                              .save_every_write = options.may_end_early});
  // A slot of the ring holds a sub-group's master and states.
  auto states = static_cast<int64_t>(1 + optimizer_of(config.optimizer).states.size());
  HoistOptions limits;
  limits.prefetch_elements = config.zero.prefetch_bucket_size;
  limits.max_live_elements = config.zero.max_live_parameters;
  limits.load_bytes = config.zero.buffer_count * states * unit;
  if (options.prefetch) hoist(program, limits);
  int64_t missing = buffers.grads.empty() ? 0 : plan.accumulation - std::ssize(buffers.grads);
  if (!repeat_micros(program, static_cast<int32_t>(missing), options.repeated)) return false;
  number_collectives(program);
  mark_last_uses(program);
  if (options.verify_passes) verify(program, {.physical = false});
  assign_offsets(program, {machine.alignment, machine.file_alignment});
  insert_waits(program);
  if (options.verify_passes) verify(program, {.physical = true});
  return true;
}

namespace {

class Compiler {
 public:
  Compiler(Plan& plan, const Config& config, const Machine& machine, bool prefetch, bool verify_passes)
      : plan_(plan), config_(config), machine_(machine), prefetch_(prefetch), verify_(verify_passes) {}

  void run() {
    init();
    refresh();
    step();
    evaluate(plan_.eval, Phase::eval, plan_.eval_graph, {{plan_.eval_graph.outputs[0], plan_.eval_loss}});
    if (plan_.logits.exists()) {
      evaluate(plan_.infer, Phase::infer, plan_.graph, {{plan_.graph.outputs[1], plan_.logits}});
    }
    if (plan_.decode) {
      finish_decode(*plan_.decode, plan_.zero, config_, machine_, {prefetch_, verify_, false});
    }
  }

 private:
  void finish(ProgramBuilder& builder, const StepBuffers& buffers, Program& out) {
    out = builder.take();
    finish_program(out, plan_.zero, config_, buffers, machine_,
                   {.prefetch = prefetch_, .verify_passes = verify_});
  }

  void init() {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan_.zero, "init", plan_.graph.bound, buffers);
    IdVector<ParamId, Init> inits;
    for (const Parameter& p : plan_.graph.params) inits.push_back(p.init);
    emit_init(builder, plan_.zero, inits);
    finish(builder, buffers, plan_.init);
  }

  void refresh() {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan_.zero, "refresh", plan_.graph.bound, buffers);
    emit_refresh(builder, plan_.zero);
    finish(builder, buffers, plan_.refresh);
  }

  void step() {
    int64_t written_out = plan_.schedule.empty() ? plan_.written_out : config_.accumulation;
    for (const WrittenOut& way : ways_to_write(config_.accumulation, written_out)) {
      if (write_step(static_cast<int32_t>(way.micros), way.repeated)) return;
    }
  }

  bool write_step(int32_t micros, int32_t repeated) {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan_.zero, "step", plan_.graph.bound, buffers);
    Lowering lowering(plan_.graph, plan_.zero, plan_.zero.inputs, builder, buffers);
    std::vector<Action> schedule = plan_.schedule.empty() ? accumulate_in_turn(micros) : plan_.schedule;
    check_schedule(schedule, micros);
    lowering.run(schedule, micros);
    emit_losses(builder, plan_.zero);
    emit_update(builder, plan_.zero, config_);
    plan_.step = builder.take();
    return finish_program(plan_.step, plan_.zero, config_, buffers, machine_,
                          {.prefetch = prefetch_, .verify_passes = verify_, .repeated = repeated});
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
  bool prefetch_, verify_;
};

void add_engine_buffers(Plan& plan, const Config& config, bool infer) {
  for (ValueId in : plan.graph.inputs) {
    const Value& value = plan.graph.values[in];
    int64_t numel = value.type.shape.numel(plan.graph.bound) * config.accumulation;
    plan.zero.inputs.push_back(
        plan.zero.add(Holds::input, "input." + value.name, value.type.dtype, numel, Tier::device));
  }
  DType loss = plan.graph.type(plan.graph.outputs[0]).dtype;
  plan.zero.loss = plan.zero.add(Holds::loss, "loss", loss, config.accumulation, Tier::device);
  plan.eval_loss = plan.zero.add(Holds::result, "eval_loss", loss, 1, Tier::device);
  if (infer && plan.graph.outputs.size() > 1) {
    const TensorType& type = plan.graph.type(plan.graph.outputs[1]);
    plan.logits = plan.zero.add(Holds::result, "infer.out", type.dtype, type.shape.numel(plan.graph.bound),
                                Tier::device);
  }
}

void check_training_graph(const Graph& graph) {
  require(!graph.outputs.empty(), "graph '{}' must have an output: its loss", graph.name);
  const TensorType& loss = graph.type(graph.outputs[0]);
  auto integers = [](const TensorType& type) {
    return type.dtype == DS_DTYPE_I32 || type.dtype == DS_DTYPE_I64 || type.dtype == DS_DTYPE_U8;
  };
  require(loss.shape.rank() == 0 && !integers(loss), "output 0 of graph '{}' must be a scalar loss, got {}",
          graph.name, loss.text());
  if (graph.outputs.size() > 1) {
    const TensorType& type = graph.type(graph.outputs[1]);
    require(!integers(type), "output 1 of graph '{}' must be of a floating type, got {}", graph.name,
            type.text());
  }
  require(!graph.params.empty(), "graph '{}' must have a parameter", graph.name);
}

// A program writes results of nodes out: the loss, or output 1, that is an input or a parameter becomes one.
void copy_plain_outputs(Graph& graph) {
  for (size_t i = 0; i < std::min<size_t>(2, graph.outputs.size()); ++i) {
    const Value& value = graph.values[graph.outputs[i]];
    if (value.producer.exists()) continue;
    graph.outputs[i] =
        graph.add("cast", {graph.outputs[i]}, {{"dtype", std::string(dtype_name(value.type.dtype))}});
  }
}

// From so many words on a head is worth making twice: the logits are four blocks and more.
constexpr int64_t kFewestHeadWords = 4096;

// The forward part in its final types. A fused head costs its product once more in a backward part and saves
// the logits, which are twice as large in f32.
Graph forward_part(const Graph& forward, const Config& config, bool differentiated) {
  Graph graph = forward;
  set_precision(graph, config.compute);
  // The engine reads losses as f32, and what ds_infer returns as any type that f32 holds.
  cast_output(graph, 0);
  if (graph.outputs.size() > 1 && graph.type(graph.outputs[1]).dtype == DS_DTYPE_F64) cast_output(graph, 1);
  fuse(graph);
  if (config.fused_head == "always") fuse_head(graph, 0);
  bool pays = !differentiated || config.compute == DS_DTYPE_F32;
  if (config.fused_head == "auto" && pays) fuse_head(graph, kFewestHeadWords);
  copy_plain_outputs(graph);
  return graph;
}

std::string plan_hash(const Plan& plan, const Config& config) {
  Hash128 hash;
  hash.update(plan.graph.print());
  hash.update(config.shared_text());
  if (plan.decode) hash.update(plan.decode->graph.print());
  const Repeat& repeat = plan.step.repeat;
  if (repeat.rounds > 1)
    hash.update(fmt::format("repeat {} {} {} {}", repeat.begin, repeat.end, repeat.rounds, repeat.micros));
  for (const Instr& in : plan.step.instrs) {
    if (in.queue != Queue::comm) continue;
    hash.update(fmt::format("{} {} {}", in.def->name, in.group.name(), in.bucket));
    for (const Operand& operand : in.operands) hash.update(operand.type.text());
  }
  return hash.hex();
}

}  // namespace

MemoryPlan memory_plan(const Plan& plan) {
  MemoryPlan memory;
  for (const Program* p : {&plan.init, &plan.refresh, &plan.step, &plan.eval, &plan.infer}) memory.add(*p);
  if (plan.decode) memory.add(plan.decode->program);
  return memory;
}

namespace {

// Ranks along `data` issue the same collectives, which their plan hashes confirm at run time. So this rank's
// programs stand for those of all.
void simulate_all(const Plan& plan) {
  for (const Program* p : {&plan.init, &plan.refresh, &plan.step, &plan.eval, &plan.infer})
    simulate(std::vector<const Program*>(static_cast<size_t>(plan.zero.mesh.ranks()), p));
}

// The rest of a plan of which graph is the forward part, and buffers and frozen parameters are known.
void compile_programs(Plan& plan, const Config& config, const Machine& machine, bool verify_passes) {
  plan.notes = plan.zero.notes;
  for (ParamId p : plan.graph.params.ids()) plan.graph.params[p].frozen = plan.zero.frozen[p] != 0;
  differentiate(plan.graph, plan.graph.outputs[0]);
  eliminate_common_subexpressions(plan.graph);
  if (config.recompute) recompute_cheap(plan.graph);
  Compiler(plan, config, machine, config.zero.overlap_comm, verify_passes).run();
  if (config.zero.overlap_comm && !fits(memory_plan(plan), config.memory_budget)) {
    Compiler(plan, config, machine, false, verify_passes).run();
    plan.notes.push_back("prefetch is off to fit memory_budget");
  }
  if (!config.recompute && !fits(memory_plan(plan), config.memory_budget)) {
    recompute_cheap(plan.graph);
    Compiler(plan, config, machine, false, verify_passes).run();
    plan.notes.push_back("cheap activations are computed again to fit memory_budget");
  }
  check_budget(plan.zero.buffers, memory_plan(plan), config.memory_budget);
  simulate_all(plan);
  plan.hash = plan_hash(plan, config);
}

}  // namespace

IdVector<ParamId, char> frozen_by_name(const Config& config, const IdVector<ParamId, std::string>& names) {
  IdVector<ParamId, char> frozen(names.size(), 0);
  for (const std::string& pattern : config.frozen) {
    bool any = false;
    for (ParamId p : names.ids()) {
      if (fnmatch(pattern.c_str(), names[p].c_str(), 0) != 0) continue;
      frozen[p] = 1;
      any = true;
    }
    if (!any) {
      std::string near = suggest(pattern, names);
      raise(DS_ERROR_CONFIG, "frozen_parameters: '{}' means none of {} parameters{}", pattern, names.size(),
            near.empty() ? near : fmt::format("; did you mean '{}'?", near));
    }
  }
  return frozen;
}

Plan compile_plan(const Graph& forward, const Config& config, int rank, const Mesh& mesh,
                  const Machine& machine, bool verify_passes, const PlanPrograms& programs) {
  check_training_graph(forward);
  Plan plan;
  plan.eval_graph = forward_part(forward, config, false);
  eliminate_common_subexpressions(plan.eval_graph);
  plan.graph = forward_part(forward, config, true);
  IdVector<ParamId, std::string> names;
  for (const Parameter& p : plan.graph.params) names.push_back(p.name);
  IdVector<ParamId, char> frozen = frozen_by_name(config, names);
  IdVector<ParamId, ParamSpec> params;
  for (ParamId p : names.ids()) {
    int64_t numel = plan.graph.type(plan.graph.params[p].value).shape.numel(plan.graph.bound);
    params.push_back({names[p], numel, frozen[p] != 0});
    const Shape& shape = plan.graph.type(plan.graph.params[p].value).shape;
    if (programs.row_granules && shape.rank() == 2) params.back().granule = shape[1].extent;
  }
  plan.zero =
      make_zero_plan(config, std::move(params), rank, mesh, machine, true, find_row_tables(plan.graph));
  plan.written_out = programs.written_out;
  plan.schedule = programs.schedule;
  add_engine_buffers(plan, config, programs.infer);
  if (programs.decode.positions > 0) {
    plan.decode = begin_decode(forward, config.compute, programs.decode, plan.zero);
  }
  compile_programs(plan, config, machine, verify_passes);
  return plan;
}

Plan recompile_plan(const Plan& plan, const Graph& forward, const Config& config, const Machine& machine,
                    const IdVector<ParamId, char>& frozen, const IdVector<ParamId, int64_t>& missed,
                    bool verify_passes) {
  Plan next = plan;
  set_frozen(next.zero, config, frozen, missed);
  next.graph = forward_part(forward, config, true);
  compile_programs(next, config, machine, verify_passes);
  return next;
}

}  // namespace ds
