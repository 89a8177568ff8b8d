#include "compile/schedule.h"

#include <gtest/gtest.h>

#include "compile/pipeline.h"
#include "support/errors.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

constexpr Action::Kind F = Action::Kind::forward, B = Action::Kind::backward;

Action act(Action::Kind kind, int micro) { return {kind, 0, MicroId(micro)}; }

TEST(Schedule, IllegalOrdersAreRefused) {
  auto refused = [](const std::vector<Action>& schedule) {
    return message_of([&] { check_schedule(schedule, 2); }, DS_ERROR_INTERNAL);
  };
  EXPECT_NO_THROW(check_schedule(accumulate_in_turn(2), 2));
  EXPECT_NO_THROW(check_schedule(std::vector{act(F, 0), act(F, 1), act(B, 0), act(B, 1)}, 2));
  EXPECT_EQ(refused({act(B, 0)}),
            "the schedule's backward of chunk 0 in micro-step 0 comes before its forward");
  EXPECT_EQ(refused({act(F, 0), act(F, 0)}),
            "the schedule's forward of chunk 0 in micro-step 0 appears twice");
  EXPECT_EQ(refused({act(F, 0), act(F, 1), act(B, 1)}),
            "the schedule's backward of chunk 0 in micro-step 1 comes where micro-step 0 is due");
  EXPECT_EQ(refused({act(F, 0), act(B, 0)}), "the schedule has the backward of 1 of 2 micro-steps");
  EXPECT_EQ(
      refused({act(F, 2)}),
      "the schedule's forward of chunk 0 in micro-step 2 is not among 2 micro-steps of 1 chunk");
}

// Other orders of the same forwards and backwards, which keep more activations, have the same bits:
// all forwards first, and forwards one micro-step ahead.
TEST(Schedule, AnyLegalOrderHasTheSameBits) {
  const std::vector<Action> orders[] = {
      {act(F, 0), act(F, 1), act(F, 2), act(F, 3), act(B, 0), act(B, 1), act(B, 2), act(B, 3)},
      {act(F, 0), act(F, 1), act(B, 0), act(F, 2), act(B, 1), act(F, 3), act(B, 2), act(B, 3)}};
  for (int stage : {0, 3}) {
    Point p;
    p.stage = stage;
    p.leaves = 8;
    p.tier = stage == 3 ? Tier::nvme : Tier::device;
    std::string want = train_threads(p, 2).bits();
    int64_t bytes =
        compile_plan(graph_of(p), config_of(p), 0, 2, Machine{}).step().arenas[0].transient;
    for (const std::vector<Action>& order : orders) {
      p.schedule = order;
      EXPECT_EQ(train_threads(p, 2).bits(), want) << p.name();
      PlanPrograms programs;
      programs.schedule = order;
      Plan plan = compile_plan(graph_of(p), config_of(p), 0, 2, Machine{}, true, programs);
      EXPECT_GT(plan.step().arenas[0].transient, bytes) << "activations of several micro-steps";
      p.chaos = 4;
      EXPECT_EQ(train_threads(p, 2).bits(), want) << p.name();
      p.chaos.reset();
    }
  }
}

}  // namespace
}  // namespace ds::test
