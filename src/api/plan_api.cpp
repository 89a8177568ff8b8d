// This file implements plans, which are compiled without an engine, and reports about them.
//
// A plan is compiled from the same configuration and graph as an engine, for any rank of a group of
// any size, without allocating its memory or communicating. Whether the plan fits into memory, and
// which changes would make it fit, requires other plans, so that is computed on first use. The text
// of a report is for people and may change; docs/reference/reports.md describes the members of the
// JSON form.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "api/boundary.h"
#include "api/handles.h"
#include "comm/communicator.h"
#include "compile/certificate.h"
#include "compile/pipeline.h"
#include "compile/plan.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/config_text.h"
#include "core/graph/graph.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "data/preference.h"
#include "monitor/plan_picture.h"
#include "monitor/readable_text.h"
#include "run/plan_column.h"
#include "run/plan_fit.h"

namespace ds {
namespace {

// Returns the lines "model" and "largest" of a report.
std::string model_lines(const Plan& plan, const Config& config) {
  constexpr size_t kLargest = 5;
  struct Row {
    const std::string* name;
    const TensorType* type;
    int64_t numel;
  };
  std::vector<Row> rows;
  int64_t total = 0;
  for (const Parameter& p : plan.graph.params) {
    const TensorType& type = plan.graph.type(p.value);
    // The shape of a parameter does not depend on n, so any n gives its size.
    rows.push_back({&p.name, &type, type.shape.numel(1)});
    total += rows.back().numel;
  }
  std::string out = fmt::format("model     {} parameters in {} tensors",
                                count_text(static_cast<double>(total)), rows.size());
  const int64_t sequences = config.micro_batch * config.get<PreferenceKeys>().texts();
  int64_t of_rank = sequences * config.accumulation * config.sequence;
  if (of_rank > 0) {
    int ranks = plan.step().mesh.data_size();
    out += fmt::format(
        "; {} tokens a step: {} rank{} x {} micro-step{} x {} sequence{} x {} tokens",
        of_rank * ranks, ranks, ranks == 1 ? "" : "s", config.accumulation,
        config.accumulation == 1 ? "" : "s", sequences, sequences == 1 ? "" : "s", config.sequence);
  }
  // The sort is stable, so that parameters of equal size keep the order of the graph and reports do
  // not vary.
  std::ranges::stable_sort(rows, [](const Row& a, const Row& b) { return a.numel > b.numel; });
  rows.resize(std::min(rows.size(), kLargest));
  out += "\n";
  for (const Row& row : rows) {
    out += fmt::format("{:<10}{:<40}{:>24}{:>10}\n", &row == &rows[0] ? "largest" : "", *row.name,
                       row.type->shape.text(), count_text(static_cast<double>(row.numel)));
  }
  return out + "\n";
}

// Returns the memory and the budget of each tier.
std::vector<TierMemory> tiers_of(const Plan& plan, const MemoryBudget& budget) {
  return memory_by_tier(plan.zero.memory.buffers, plan.memory, budget);
}

// Number of instructions in a step by queue, and number of calls by collective.
struct StepCounts {
  std::map<std::string, int64_t> queues, collectives;
};

// Counts the instructions of a step. An instruction that is repeated counts once for each round.
StepCounts counts_of(const Plan& plan) {
  StepCounts out;
  const Program& step = plan.step();
  for (InstrId i : step.instrs.ids()) {
    const Instr& instr = step.instrs[i];
    out.queues[queue_name(instr.queue)] += step.runs(i);
    if (instr.queue == Queue::comm) out.collectives[instr.def->name] += step.runs(i);
  }
  return out;
}

// Returns the plan's fit. Several threads may call this for the same plan; the first one computes
// the fit.
const PlanFit& fit_of(const ds_plan& plan) {
  std::call_once(plan.asked, [&] { plan.fit = plan_fit(plan.source, plan.made); });
  return plan.fit;
}

// Returns the report as text. "overhead" is the memory that libraries allocate, which is not part
// of a plan: only an engine can measure it.
std::string plan_report(const Plan& plan, const Config& config, const PlanFit& fit) {
  StepCounts counts = counts_of(plan);
  std::string out = fit.text() + "\n" + model_lines(plan, config) +
                    memory_table(tiers_of(plan, config.memory_budget));
  out += "overhead  measured when an engine is created\n";
  out += fmt::format("\n{:<34}{:>16}\n", "queue", "instructions");
  // Queues have the order of the enum; those without instructions are omitted.
  for (int q = 0; q < kQueues; ++q) {
    auto found = counts.queues.find(queue_name(static_cast<Queue>(q)));
    if (found != counts.queues.end())
      out += fmt::format("{:<34}{:>16}\n", found->first, found->second);
  }
  if (!counts.collectives.empty())
    out += fmt::format("\n{:<34}{:>16}\n", "collective", "calls per step");
  for (const auto& [op, calls] : counts.collectives)
    out += fmt::format("{:<34}{:>16}\n", op, calls);
  out += fmt::format("\nplan {}\n", plan.hash);
  for (const std::string& note : plan.notes) out += note + "\n";
  return out;
}

Json object_of(const std::map<std::string, int64_t>& numbers) {
  Json out{Json::Object()};
  for (const auto& [name, number] : numbers) out.set(name, number);
  return out;
}

Json plan_json(const Plan& plan, const Config& config, const PlanFit& fit) {
  StepCounts counts = counts_of(plan);
  Json out;
  int64_t parameters = 0;
  Json::Array tensors, notes;
  for (const Parameter& p : plan.graph.params) {
    const Shape& shape = plan.graph.type(p.value).shape;
    Json::Array dims;
    for (const Dim& d : shape.dims()) dims.emplace_back(d.extent);
    Json tensor;
    tensor.set("name", p.name);
    tensor.set("shape", std::move(dims));
    tensors.push_back(std::move(tensor));
    parameters += shape.numel(1);
  }
  for (const std::string& note : plan.notes) notes.emplace_back(note);
  out.set("schema", 1);
  out.set("fit", fit.json());
  out.set("parameters", parameters);
  out.set("tensors", std::move(tensors));
  out.set("ranks", plan.step().mesh.ranks());
  out.set("rank", plan.step().rank);
  out.set("micro_batch", config.micro_batch);
  out.set("gradient_accumulation_steps", config.accumulation);
  // A model that does not process text has no sequence length.
  out.set("sequence", config.sequence > 0 ? Json(config.sequence) : Json());
  out.set("memory", memory_json(tiers_of(plan, config.memory_budget)));
  out.set("instructions", object_of(counts.queues));
  out.set("collectives", object_of(counts.collectives));
  out.set("hash", plan.hash);
  out.set("notes", std::move(notes));
  return out;
}

}  // namespace
}  // namespace ds

// The graph is copied, so the caller may destroy it. If it is NULL, the configuration names the
// model.
ds_status ds_plan_create(const char* config, const ds_graph* graph, int32_t rank, int32_t size,
                         ds_plan** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    std::string_view text = ds::need_text(config, "config");
    ds::require(size >= 1, "size must be at least 1 rank, got {}", size);
    ds::require(rank >= 0 && rank < size, "rank must be 0 to {}, got {}", size - 1, rank);
    auto handle = std::make_unique<ds_plan>();
    handle->source = {ds::parse_config_text(text, "config"), nullptr, rank, size};
    if (ds::need_or_null(graph, "graph")) {
      ds::need_trainable(graph->graph);
      handle->source.graph = std::make_shared<const ds::Graph>(graph->graph);
    }
    handle->made = ds::make_plan(handle->source);
    *out = handle.release();
  });
}

ds_status ds_plan_report(const ds_plan* plan, ds_format format, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    const ds_plan& p = ds::need(plan, "plan");
    bool json = ds::wants_json(format);
    const ds::MadePlan& made = p.made;
    const ds::PlanFit& fit = ds::fit_of(p);
    ds::put_text(json ? ds::plan_json(made.plan, made.config, fit).dump(1)
                      : ds::plan_report(made.plan, made.config, fit),
                 out_text);
  });
}

ds_status ds_plan_print(const ds_plan* plan, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::put_text(ds::print_steps(ds::need(plan, "plan").made.plan), out_text);
  });
}

// Draws the plans side by side on the same scale.
ds_status ds_plan_picture(const ds_plan* const* plans, size_t count, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::need(plans, "plans");
    ds::require(count >= 1 && count <= 16, "count must be 1 to 16 plans, got {}", count);
    std::vector<ds::PlanColumn> columns;
    for (size_t i = 0; i < count; ++i) {
      const ds_plan& plan = ds::need(plans[i], fmt::format("plans[{}]", i).c_str());
      columns.push_back(ds::plan_column(plan.made.plan, plan.made.config.zero));
    }
    ds::put_text(ds::plan_picture(columns, ds::plan_column_note()), out_text);
  });
}

ds_status ds_plan_certificate(const ds_plan* const* plans, size_t count, char** out_text) {
  return ds::boundary([&] {
    ds::need(out_text, "out_text") = nullptr;
    ds::need(plans, "plans");
    ds::require(count >= 1, "count must be at least 1 plan, got {}", count);
    std::vector<const ds::Plan*> ranks;
    for (size_t i = 0; i < count; ++i) {
      // A certificate compares all ranks of one job, so plans[i] must be the plan of rank i of
      // `count`.
      const ds_plan& plan = ds::need(plans[i], fmt::format("plans[{}]", i).c_str());
      const ds::Program& step = plan.made.plan.step();
      ds::require(
          static_cast<size_t>(step.rank) == i && static_cast<size_t>(step.mesh.ranks()) == count,
          "plans[{}] must be of rank {} of {}, got rank {} of {}", i, ds::RankNumber(i), count,
          step.rank, step.mesh.ranks());
      ranks.push_back(&plan.made.plan);
    }
    ds::put_text(ds::certificate(ranks), out_text);
  });
}

void ds_plan_destroy(ds_plan* plan) { ds::destroy(plan); }
