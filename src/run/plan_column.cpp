// The picture shows the predicted timeline of a compiled step, not a measured one. Order and memory
// are exact; times are those of an assumed machine.
#include "run/plan_column.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compile/memory_plan.h"
#include "core/base/tier.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "core/program/timeline.h"

namespace ds {
namespace {

std::string title_of(const Plan& plan, const ZeroConfig& zero) {
  std::string out = fmt::format("ZeRO-{}, {} rank{}", zero.stage, plan.step().mesh.ranks(),
                                plan.step().mesh.ranks() == 1 ? "" : "s");
  auto offloaded = [&](const char* kind, Tier tier) {
    if (tier != Tier::device) out += fmt::format(", {} on {}", kind, tier_name(tier));
  };
  // The repeated part of a step is drawn only once, so the title says how many micro-steps the
  // picture shows.
  const Repeat& repeat = plan.step().repeat;
  if (repeat.rounds > 1)
    out += fmt::format(", of {} micro-steps {} are drawn", plan.zero.accumulation,
                       plan.zero.accumulation - (repeat.rounds - 1) * repeat.micros);
  offloaded("states", zero.optimizer_tier);
  offloaded("parameters", zero.param_tier);
  return out;
}

// Returns one lane for each queue that has instructions. The color of a block shows its phase.
std::vector<PlanColumn::Lane> lanes_of(const Program& program, const Timeline& timeline) {
  std::vector<PlanColumn::Lane> lanes;
  for (int q = 0; q < kQueues; ++q) lanes.push_back({queue_name(static_cast<Queue>(q)), {}});
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    const Instr& instr = program.instrs[i];
    Phase phase = program.phase(instr);
    bool backward = phase == Phase::backward || phase == Phase::backward_last;
    const char* colour = phase == Phase::forward ? "forward" : backward ? "backward" : "update";
    lanes[static_cast<size_t>(instr.queue)].blocks.push_back(
        {timeline.begin[i], timeline.end[i], colour, instr.def->name});
  }
  std::erase_if(lanes, [](const PlanColumn::Lane& lane) { return lane.blocks.empty(); });
  return lanes;
}

}  // namespace

PlanColumn plan_column(const Plan& plan, const ZeroConfig& zero) {
  Timeline timeline = predict_timeline(plan.step(), Machine{});
  MemoryPlan memory = plan.memory;
  PlanColumn out;
  out.title = title_of(plan, zero);
  out.seconds = timeline.seconds;
  out.lanes = lanes_of(plan.step(), timeline);
  for (Tier tier : {Tier::device, Tier::host}) {
    if (memory.total(tier) == 0) continue;
    out.areas.push_back({tier_name(tier), bytes_over_time(plan.step(), timeline, tier),
                         memory.tiers[static_cast<int>(tier)].persistent, memory.total(tier)});
  }
  return out;
}

std::string plan_column_note() {
  Machine m;
  return fmt::format(
      "Order and memory are those of the compiled step; times assume {:g} GFLOP/s, "
      "{:g} GB/s of memory, {:g} GB/s between ranks and {:g} GB/s of files.",
      m.flops_per_second * 1e-9, m.device_bytes_per_second * 1e-9, m.link_bytes_per_second * 1e-9,
      m.file_bytes_per_second * 1e-9);
}

}  // namespace ds
