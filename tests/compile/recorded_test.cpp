// Tests the recorded step of a delegate host with many micro-steps: one micro-step is compiled and
// repeated.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "compile/delegate.h"
#include "support/delegate_calls.h"
#include "support/models.h"

namespace ds::test::recorded_test {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
constexpr std::array<int64_t, 3> kNothing{};

Config config_of(int stage, Tier tier, int64_t micros) {
  Config c = make_config(stage, micros, 2);
  c.zero.optimizer_tier = tier;
  if (stage == 3) c.zero.param_tier = tier;
  c.zero.nvme_path = "unused";
  c.zero.param_persistence_threshold = 0;
  c.zero.max_reuse_distance = 0;
  // Each bucket holds two parameters.
  c.zero.reduce_bucket_size = 3000;
  return c;
}

RecordedStep record(const Config& c, int params, const IdVector<EventId, HostEvent>& calls,
                    int64_t written_out) {
  Plan plan = delegate_plan(c, params, 0, 2);
  std::optional<RecordedStep> step =
      compile_recorded(plan, c, Machine{}, calls, kNothing, written_out);
  EXPECT_TRUE(step.has_value());
  return std::move(*step);
}

// Returns the instructions that run with each call of the host, without the names of buffers.
std::vector<std::string> by_call(const RecordedStep& step) {
  const Program& p = step.program;
  std::vector<std::string> out;
  Position at;
  for (EventId e : step.order.events.ids()) {
    std::string line = std::to_string(static_cast<int>(step.order.events[e].kind));
    for (; p.before(at, step.order.event_end[e]); at = p.next(at)) {
      const Instr& in = p.instrs[at.instr];
      if (!p.takes_part(at)) continue;
      line += " " + in.def->name + "@" + std::to_string(p.micro(at).number());
      for (const Operand& operand : in.operands)
        line += " +" + std::to_string(in_round(operand, at.round).begin);
      if (at == step.order.event_at[e]) line += " here";
    }
    out.push_back(std::move(line));
  }
  return out;
}

TEST(Recorded, ARepeatedStepIssuesTheInstructionsOfAWrittenOutStep) {
  constexpr int kParams = 5;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host}) {
      for (bool reproducible : {false, true}) {
        int64_t micros = reproducible ? 16 : 11 + stage;
        Config c = config_of(stage, tier, micros);
        c.reproducible = reproducible;
        IdVector<EventId, HostEvent> calls = layer_calls(kParams, micros, ParamId(1));
        RecordedStep repeated = record(c, kParams, calls, 0),
                     whole = record(c, kParams, calls, kAll);
        std::string where = "stage " + std::to_string(stage) + " tier " + tier_name(tier);
        EXPECT_GT(repeated.program.repeat.rounds, 1) << where;
        EXPECT_EQ(whole.program.repeat.rounds, 1);
        EXPECT_LT(repeated.program.instrs.size(), whole.program.instrs.size());
        EXPECT_EQ(repeated.order.events, calls);
        // If sums form a tree, every round of the repeated step has the instructions of all levels.
        if (reproducible) continue;
        EXPECT_EQ(by_call(repeated), by_call(whole)) << where;
      }
    }
  }
}

// In each micro-step, the last instruction that reduces a bucket comes after all gradients of the
// bucket, and no later than the end of the micro-step.
TEST(Recorded, ReducesEachBucketAfterItsGradientsInEveryRound) {
  constexpr int kParams = 4;
  constexpr int64_t kMicros = 14;
  for (int stage : {0, 2, 3}) {
    Config c = config_of(stage, Tier::device, kMicros);
    Plan plan = delegate_plan(c, kParams, 0, 2);
    RecordedStep step = record(c, kParams, layer_calls(kParams, kMicros), 0);
    ASSERT_GT(step.program.repeat.rounds, 1);
    MicroId m(0);
    for (EventId e : step.order.events.ids()) {
      const HostEvent& event = step.order.events[e];
      if (event.kind == HostEvent::Kind::grad) {
        BucketId b = plan.zero.layout.bucket_of[event.params[0]];
        EXPECT_TRUE(
            step.program.before(step.order.event_at[e], step.order.reduced(step.program, m, b)));
      }
      if (event.kind != HostEvent::Kind::end) continue;
      for (BucketId b : plan.zero.buckets.ids())
        EXPECT_FALSE(
            step.program.before(step.order.event_end[e], step.order.reduced(step.program, m, b)))
            << m.number();
      ++m;
    }
  }
}

TEST(Recorded, AStepWhoseCallsChangeIsWrittenOut) {
  Config c = config_of(3, Tier::device, 20);
  IdVector<EventId, HostEvent> calls = layer_calls(3, 20);
  // The host changes its order in the middle of the step.
  std::swap(calls[EventId(80)], calls[EventId(82)]);
  EXPECT_EQ(record(c, 3, calls, 0).program.repeat.rounds, 1);
}

TEST(Recorded, CompilesAnyNumberOfMicroStepsInTheTimeOfAFew) {
  constexpr int64_t kMicros = 65536;
  IdVector<EventId, HostEvent> calls = layer_calls(4, kMicros);
  for (int stage : {0, 3}) {
    Config c = config_of(stage, Tier::host, kMicros);
    Plan plan = delegate_plan(c, 4, 0, 2);
    IdVector<EventId, HostEvent> given = calls;
    auto begin = std::chrono::steady_clock::now();
    std::optional<RecordedStep> step =
        compile_recorded(plan, c, Machine{}, std::move(given), kNothing, 16);
    std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(taken.count(), 1.0);
    ASSERT_TRUE(step.has_value());
    EXPECT_LT(step->program.instrs.size(), 2000u);
    EXPECT_EQ(step->order.events.size(), calls.size());
    EXPECT_GT(step->program.repeat.rounds, 20000);
  }
}

}  // namespace
}  // namespace ds::test::recorded_test
