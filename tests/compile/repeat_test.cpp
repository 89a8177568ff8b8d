// Tests steps with many micro-steps: one of the middle micro-steps is compiled and repeated.
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <limits>

#include "compile/pipeline.h"
#include "core/base/error.h"
#include "support/models.h"
#include "support/ranks.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

Plan plan_of(const Point& p, int64_t written_out, int rank = 0) {
  PlanPrograms programs;
  programs.written_out = written_out;
  return compile_plan(graph_of(p), config_of(p), rank, p.world, Machine{}, true, programs);
}

Point point(int stage, Tier tier, int64_t micros, int world = 2) {
  Point p;
  p.stage = stage;
  p.tier = tier;
  p.world = world;
  p.leaves = micros * world;
  return p;
}

std::vector<Point> cover(int64_t micros) {
  std::vector<Point> points;
  for (int stage = 0; stage <= 3; ++stage) {
    for (Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      points.push_back(point(stage, tier, micros, 1 + (stage + static_cast<int>(tier)) % 3));
      points.back().emulate = (stage + static_cast<int>(tier)) % 2 == 0;
      points.back().overlap = stage != 2;
    }
  }
  points.push_back(point(3, Tier::nvme, micros, 4));
  points.back().nodes = points.back().mics = 2;
  points.push_back(point(3, Tier::host, micros, 4));
  points.back().hpz = 2;
  points.back().quantized_weights = true;
  points.back().gradient_bits = 4;
  points.back().err_beta = 0.8;
  points.push_back(point(2, Tier::host, micros, 3));
  points.back().vocab = 400;
  points.back().tied = false;
  points.back().sparse = true;
  for (Tier tier : {Tier::device, Tier::nvme}) {
    points.push_back(point(1, tier, micros, 2));
    points.back().boundary = true;
    points.back().vocab = 400;
    points.back().tied = false;
    points.back().sparse = tier == Tier::device;
  }
  for (int64_t distance : {0, 1000000}) {
    points.push_back(point(3, Tier::device, micros, 2));
    points.back().max_reuse_distance = distance;
  }
  return points;
}

// Returns the sequence of instructions that a program issues, without the names of its buffers.
std::vector<std::string> issued(const Program& p) {
  std::vector<std::string> out;
  for (Position at; at != p.end(); at = p.next(at)) {
    const Instr& in = p.instrs[at.instr];
    std::string line = fmt::format("{} {} micro {} {}", in.def->name, queue_name(in.queue),
                                   p.micro(at), in.attrs.print());
    for (const Operand& operand : in.operands) {
      Operand o = in_round(operand, at.round);
      const Buffer& b = p.buffers[o.buffer];
      bool persistent = b.residency == Residency::persistent;
      line += fmt::format(" {}{} {}+{}", static_cast<int>(o.access), o.type.text(),
                          persistent ? b.name : tier_name(b.tier), o.begin);
    }
    out.push_back(std::move(line));
  }
  return out;
}

TEST(Repeat, IssuesTheInstructionsOfAWrittenOutStep) {
  for (const Point& p : cover(23)) {
    Program repeated = plan_of(p, 0).step(), whole = plan_of(p, kAll).step();
    ASSERT_GT(repeated.repeat.rounds, 1) << p.name();
    EXPECT_EQ(whole.repeat.rounds, 1);
    EXPECT_LT(repeated.instrs.size(), whole.instrs.size() / 2);
    EXPECT_EQ(issued(repeated), issued(whole)) << p.name();
    // The repeated program may keep one more bucket from round to round.
    for (int t = 0; t < 3; ++t) {
      int64_t more = repeated.arenas[t].transient - whole.arenas[t].transient;
      EXPECT_LE(more, whole.arenas[t].transient / 3) << p.name() << " tier " << t;
      EXPECT_EQ(repeated.arenas[t].persistent, whole.arenas[t].persistent);
    }
    EXPECT_EQ(parse_program(repeated.print()).print(), repeated.print());
  }
}

TEST(Repeat, ShortStepsAreWrittenOut) {
  Point p = point(3, Tier::device, 16);
  EXPECT_EQ(plan_of(p, 16).step().repeat.rounds, 1);
  EXPECT_EQ(plan_of(p, 16).step().print(), plan_of(p, kAll).step().print());
  p.leaves += p.world;
  EXPECT_GT(plan_of(p, 16).step().repeat.rounds, 1);
}

TEST(Repeat, HasTheBitsOfAWrittenOutStep) {
  for (bool reproducible : {false, true}) {
    for (Point p : cover(11)) {
      p.reproducible = reproducible && std::has_single_bit(static_cast<unsigned>(p.world));
      if (p.reproducible != reproducible) continue;
      p.written_out = kAll;
      // With states on files, saves continue into the next step.
      int steps = p.tier == Tier::nvme ? 2 : 1;
      std::string want = train_threads(p, steps).bits();
      for (bool chaos : {false, true}) {
        if (chaos) p.chaos = 3;
        p.written_out = 0;
        EXPECT_EQ(train_threads(p, steps).bits(), want) << p.name();
      }
    }
  }
}

TEST(Repeat, HasTheBitsOfAWrittenOutStepOf300MicroSteps) {
  for (bool reproducible : {false, true}) {
    Point p = point(3, Tier::host, 300);
    p.reproducible = reproducible;
    p.written_out = kAll;
    std::string want = train_threads(p, 1).bits();
    p.written_out = 16;
    EXPECT_EQ(train_threads(p, 1).bits(), want);
  }
}

TEST(Repeat, CompilesAnyNumberOfMicroStepsInTheTimeOfAFew) {
  for (bool reproducible : {false, true}) {
    for (int stage : {0, 3}) {
      Point p = point(stage, Tier::nvme, 65536);
      p.reproducible = reproducible;
      auto begin = std::chrono::steady_clock::now();
      Plan plan = plan_of(p, 16);
      std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(taken.count(), 1.0);
      EXPECT_LT(plan.step().instrs.size(), 6000u);
      Position end = plan.step().end_of(Phase::backward, MicroId(40000));
      EXPECT_EQ(plan.step().micro(end), MicroId(40001));
    }
  }
}

// Each wait of a repeated program is needed: if any is removed, the verifier refuses the program.
TEST(Repeat, EveryWaitIsNeeded) {
  for (Tier tier : {Tier::host, Tier::nvme}) {
    Program step = plan_of(point(3, tier, 20), 0).step();
    int of_round_before = 0;
    for (InstrId i : step.instrs.ids()) {
      for (size_t w = 0; w < step.instrs[i].waits.size(); ++w) {
        Program broken = step;
        of_round_before += step.instrs[i].waits[w].round_before;
        broken.instrs[i].waits.erase(broken.instrs[i].waits.begin() +
                                     static_cast<std::ptrdiff_t>(w));
        EXPECT_THROW(verify(broken, {}), Error) << i.number() << " " << w;
      }
    }
    EXPECT_GT(of_round_before, 2);
  }
}

}  // namespace
}  // namespace ds::test
