// Tests how much of a step's communication its compiled order hides. The test's clock counts one
// tick for each kernel and each collective, and none for anything else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "compile/pipeline.h"
#include "core/program/program.h"
#include "nn/models/gpt.h"

namespace ds::test {
namespace {

Config config_of(int64_t accumulation) {
  Config c;
  c.micro_batch = 1;
  c.accumulation = accumulation;
  c.train_batch = 2 * accumulation;
  c.compute = DS_DTYPE_BF16;
  c.zero.stage = 3;
  c.zero.param_persistence_threshold = 0;
  c.zero.max_reuse_distance = 0;
  // Each parameter has its own collective.
  c.zero.reduce_bucket_size = 1;
  return c;
}

Program step_of(const Config& config) {
  ModelConfig m;
  m.family = "gpt";
  m.layers = 2;
  m.hidden = 32;
  m.heads = 2;
  m.vocab = 64;
  m.positions = 8;
  return compile_plan(build_gpt(m, 8, 8), config, 0, 2, Machine{}).step();
}

struct Ticks {
  int64_t sum = 0, taken = 0;
  double share() const { return static_cast<double>(taken) / static_cast<double>(sum); }
};

Ticks play(const Program& p) {
  Ticks ticks;
  IdVector<InstrId, int64_t> end(p.instrs.size(), 0);
  std::map<Queue, int64_t> free;
  for (InstrId i : p.instrs.ids()) {
    const Instr& in = p.instrs[i];
    int64_t begin = free[in.queue];
    for (const Wait& wait : in.waits) {
      if (!wait.run_before) begin = std::max(begin, end[wait.instr]);
    }
    int64_t length = in.def->kind == Kind::copy || in.def->kind == Kind::file ? 0 : 1;
    ticks.sum += length;
    end[i] = free[in.queue] = begin + length;
    ticks.taken = std::max(ticks.taken, end[i]);
  }
  return ticks;
}

TEST(Overlap, ComputeHidesNearlyAllCommunication) {
  Config c = config_of(4);
  double with = play(step_of(c)).share();
  c.zero.overlap_comm = false;
  EXPECT_LE(with, 0.67);
  EXPECT_GE(play(step_of(c)).share(), 0.85);
}

// Gathers of parameters run ahead of their use by at most prefetch_bucket_size elements.
TEST(Overlap, GathersRunAheadByThePrefetchBucketSize) {
  std::map<int64_t, int64_t> ahead;
  for (int64_t elements : {int64_t{100}, int64_t{4100}, int64_t{50000000}}) {
    Config c = config_of(1);
    c.zero.prefetch_bucket_size = elements;
    Program p = step_of(c);
    std::map<BufferId, InstrId> gathered;
    for (InstrId i : p.instrs.ids()) {
      const Instr& in = p.instrs[i];
      if (in.def->op == Op::all_gather) {
        gathered[in.operands[1].buffer] = i;
        continue;
      }
      for (const Operand& o : in.operands) {
        auto known = gathered.find(o.buffer);
        if (known == gathered.end()) continue;
        for (InstrId k : IdRange(known->second, i))
          ahead[elements] += p.instrs[k].queue == Queue::compute;
        gathered.erase(known);
      }
    }
  }
  EXPECT_LT(ahead[100], ahead[4100]);
  EXPECT_LT(ahead[4100], ahead[50000000]);
}

}  // namespace
}  // namespace ds::test
