#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/boundary.h"
#include "api/handles.h"
#include "checkpoint/model_folder.h"
#include "comm/communicator.h"
#include "compile/certificate.h"
#include "compile/pipeline.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/graph/graph.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "monitor/plan_picture.h"
#include "monitor/readable_text.h"
#include "nn/models/hf.h"
#include "run/plan_column.h"
#include "run/setup.h"

namespace ds {
namespace {

// "model" and "largest tensors" of a plan.
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
    rows.push_back({&p.name, &type, type.shape.numel(1)});
    total += rows.back().numel;
  }
  std::string out = fmt::format("model     {} parameters in {} tensors",
                                count_text(static_cast<double>(total)), rows.size());
  int64_t of_rank = config.micro_batch * config.accumulation * config.sequence;
  if (of_rank > 0) {
    int ranks = plan.step.mesh.data_size();
    out += fmt::format("; {} tokens a step: {} rank{} x {} micro-step{} x {} sequence{} x {} tokens",
                       of_rank * ranks, ranks, ranks == 1 ? "" : "s", config.accumulation,
                       config.accumulation == 1 ? "" : "s", config.micro_batch,
                       config.micro_batch == 1 ? "" : "s", config.sequence);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.numel > b.numel; });
  rows.resize(std::min(rows.size(), kLargest));
  out += "\n";
  for (const Row& row : rows) {
    out += fmt::format("{:<10}{:<40}{:>24}{:>10}\n", &row == &rows[0] ? "largest" : "", *row.name,
                       row.type->shape.text(), count_text(static_cast<double>(row.numel)));
  }
  return out + "\n";
}

}  // namespace

std::string plan_report(const Plan& plan, const Config& config) {
  std::map<std::string, int64_t> collectives;
  int64_t queues[kQueues] = {};
  for (InstrId i : plan.step.instrs.ids()) {
    const Instr& instr = plan.step.instrs[i];
    queues[static_cast<int>(instr.queue)] += plan.step.runs(i);
    if (instr.queue == Queue::comm) collectives[instr.def->name] += plan.step.runs(i);
  }
  std::string out =
      model_lines(plan, config) + memory_table(plan.zero.buffers, memory_plan(plan), config.memory_budget);
  out += "overhead  measured when an engine is created\n";
  out += fmt::format("\n{:<34}{:>16}\n", "queue", "instructions");
  for (int q = 0; q < kQueues; ++q) {
    if (queues[q] > 0) out += fmt::format("{:<34}{:>16}\n", queue_name(static_cast<Queue>(q)), queues[q]);
  }
  if (!collectives.empty()) out += fmt::format("\n{:<34}{:>16}\n", "collective", "calls per step");
  for (const auto& [op, calls] : collectives) out += fmt::format("{:<34}{:>16}\n", op, calls);
  out += fmt::format("\nplan {}\n", plan.hash);
  for (const std::string& note : plan.notes) out += note + "\n";
  return out;
}

}  // namespace ds

ds_status ds_plan_create(const char* config, const ds_graph* graph, int32_t rank, int32_t size,
                         ds_plan** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    std::string_view text = ds::need_text(config, "config");
    ds::require(size >= 1, "size must be at least 1 rank, got {}", size);
    ds::require(rank >= 0 && rank < size, "rank must be 0 to {}, got {}", size - 1, rank);
    auto handle = std::make_unique<ds_plan>();
    handle->config = ds::parse_config(ds::Json::parse(text, "config"), size);
    if (ds::need_or_null(graph, "graph")) ds::need_trainable(graph->graph);
    ds::PlanPrograms programs;
    ds::HfModel model;
    if (!graph) {
      model = ds::configured_model(handle->config);
      programs = ds::run_programs(handle->config, model);
    }
    handle->plan = ds::compile_plan(graph ? graph->graph : model.graph, handle->config, rank, size,
                                    ds::Machine{}, true, programs);
    *out = handle.release();
  });
}

ds_status ds_plan_report(const ds_plan* plan, char* buffer, size_t buffer_size, size_t* out_size) {
  return ds::boundary([&] {
    const ds_plan& p = ds::need(plan, "plan");
    ds::put_text(ds::plan_report(p.plan, p.config), buffer, buffer_size, out_size);
  });
}

ds_status ds_plan_print(const ds_plan* plan, char* buffer, size_t buffer_size, size_t* out_size) {
  return ds::boundary(
      [&] { ds::put_text(ds::need(plan, "plan").plan.step.print(), buffer, buffer_size, out_size); });
}

ds_status ds_plan_picture(const ds_plan* const* plans, size_t count, char* buffer, size_t buffer_size,
                          size_t* out_size) {
  return ds::boundary([&] {
    ds::need(plans, "plans");
    ds::require(count >= 1 && count <= 16, "count must be 1 to 16 plans, got {}", count);
    std::vector<ds::PlanColumn> columns;
    for (size_t i = 0; i < count; ++i) {
      const ds_plan& plan = ds::need(plans[i], fmt::format("plans[{}]", i).c_str());
      columns.push_back(ds::plan_column(plan.plan, plan.config));
    }
    ds::put_text(ds::plan_picture(columns, ds::plan_column_note()), buffer, buffer_size, out_size);
  });
}

ds_status ds_plan_certificate(const ds_plan* const* plans, size_t count, char* buffer, size_t buffer_size,
                              size_t* out_size) {
  return ds::boundary([&] {
    ds::need(plans, "plans");
    ds::require(count >= 1, "count must be at least 1 plan, got {}", count);
    std::vector<const ds::Plan*> ranks;
    for (size_t i = 0; i < count; ++i) {
      const ds_plan& plan = ds::need(plans[i], fmt::format("plans[{}]", i).c_str());
      const ds::Program& step = plan.plan.step;
      ds::require(static_cast<size_t>(step.rank) == i && static_cast<size_t>(step.mesh.ranks()) == count,
                  "plans[{}] must be of rank {} of {}, got rank {} of {}", i, i, count, step.rank,
                  step.mesh.ranks());
      ranks.push_back(&plan.plan);
    }
    ds::put_text(ds::certificate(ranks), buffer, buffer_size, out_size);
  });
}

void ds_plan_destroy(ds_plan* plan) { ds::destroy(plan); }
