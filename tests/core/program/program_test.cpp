#include "core/program/program.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/base/element_run.h"
#include "core/base/error.h"
#include "core/program/builder.h"
#include "core/program/granules.h"
#include "support/dice.h"

namespace ds {
namespace {

Program sample() {
  Program p;
  p.name = "sample";
  p.rank = 1;
  p.mesh = 2;
  p.bound = 8;
  p.buffers.push_back({"w", DS_DTYPE_BF16, 512, Tier::host, Residency::persistent, 0});
  ProgramBuilder b(std::move(p));
  BufferId w = b.transient("w.dev", DS_DTYPE_BF16, 512, Tier::device);
  BufferId y = b.transient("y", DS_DTYPE_F32, 16, Tier::device);
  b.emit(Op::fetch, {flat(b.buffer(BufferId(0)), BufferId(0), 0, 512, Access::read),
                     flat(b.buffer(w), w, 0, 512, Access::write)});
  b.end_segment(Phase::forward, MicroId(0));
  b.emit(make_instr(
      instruction("linear"),
      {{w, 64, {DS_DTYPE_BF16, Shape{2, 2}}, Access::read, true},
       {y, 0, {DS_DTYPE_F32, Shape{Dim::n(), 2}}, Access::write, false}},
      {{"eps", 1e-5}, {"name", std::string("a b")}, {"levels", std::vector<int64_t>{4, 2}}},
      MicroId(1)));
  b.end_segment(Phase::update);
  Program out = b.take();
  out.instrs[1].waits = {{InstrId(0)}};
  out.arenas[0] = {0, 1088};
  out.arenas[1] = {1024, 0};
  out.buffers[1].offset = 0;
  out.buffers[2].offset = 1024;
  return out;
}

TEST(ProgramText, ParsesBack) {
  std::string text = sample().print();
  EXPECT_EQ(parse_program(text).print(), text);
  EXPECT_NE(text.find("1 comp linear !%w.dev+64:bf16[2,2] =%y:f32[n,2]"), std::string::npos)
      << text;
}

// Names may have the characters that separate the parts of an operand.
TEST(ProgramText, AnyNameOfABufferParsesBack) {
  test::Dice dice(31);
  for (int i = 0; i < 300; ++i) {
    Program p = sample();
    std::string& name = p.buffers[BufferId(1)].name;
    name.clear();
    for (int64_t parts = 1 + dice.below(4); parts > 0; --parts)
      name += dice.pick({"a", "+", "1", "*", ":", "#", "!", "~", "-", "wait", "."});
    Operand& first = p.instrs[InstrId(1)].operands[0];
    if (dice.one_in(2)) first.begin = 0;
    if (dice.one_in(2)) first.stride = 4;
    Program parsed = parse_program(p.print());
    EXPECT_EQ(parsed.print(), p.print());
    const Operand& back = parsed.instrs[InstrId(1)].operands[0];
    EXPECT_EQ(parsed.buffers[back.buffer].name, name);
    EXPECT_EQ(back.begin, first.begin) << p.print();
    EXPECT_EQ(back.stride, first.stride) << p.print();
  }
}

// Returns the sample program with these runs in its first instruction.
Program with_runs(std::vector<ElementRun> runs) {
  Program p = sample();
  p.instrs[0].runs = std::move(runs);
  return p;
}

std::string runs_text(std::vector<ElementRun> runs) {
  std::string text = with_runs(std::move(runs)).print();
  size_t begin = text.find("runs=") + 5;
  return text.substr(begin, text.find_first_of(" \n", begin) - begin);
}

TEST(ProgramText, FoldsEvenlySpacedRuns) {
  EXPECT_EQ(runs_text({{0, 12, 0}}), "0:12");
  EXPECT_EQ(runs_text({{0, 12, 0}, {100, 112, 0}, {200, 212, 0}, {40, 52, 0}}), "0:12*3+100,40:52");
  EXPECT_EQ(runs_text({{9, 10, 2}, {5, 6, 2}, {1, 2, 2}}), "9:10:2*3-4");
  // Runs with different lengths or different numbers of missed updates are not folded.
  EXPECT_EQ(runs_text({{0, 12, 0}, {100, 113, 0}, {200, 213, 1}}), "0:12,100:113,200:213:1");
  EXPECT_EQ(runs_text({{0, 12, 0, 0, 5, 512}, {12, 20, 0, 2, 6}}), "0:12:0:0:5:512,12:20:0:2:6");
  std::vector<ElementRun> ranks;
  for (int64_t r = 0; r < 4096; ++r) ranks.push_back({1 + 77 * r, 5 + 77 * r, 0});
  EXPECT_EQ(runs_text(ranks), "1:5*4096+77");
  EXPECT_EQ(
      runs_text({{0, 8, 0}, {90, 98, 0}, {10, 18, 0}, {100, 108, 0}, {20, 28, 0}, {110, 118, 0}}),
      "0:8*2+90*3+10");
}

TEST(ProgramText, AnyRunsParseBack) {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    test::Dice dice(seed);
    std::vector<ElementRun> runs;
    int64_t begin = dice.below(50);
    for (int64_t left = 1 + dice.below(30); left > 0; --left) {
      int64_t count = 1 + dice.below(8), numel = dice.below(3), distance = dice.below(9) - 4;
      for (int64_t k = 0; k < count; ++k, begin += distance)
        runs.push_back({begin, begin + numel, seed % 2 == 0 ? 0 : dice.below(2)});
    }
    Program p = with_runs(runs);
    Program parsed = parse_program(p.print());
    EXPECT_EQ(parsed.instrs[InstrId(0)].runs, runs) << "seed " << seed << "\n" << p.print();
    EXPECT_EQ(parsed.print(), p.print()) << "seed " << seed;
  }
}

TEST(ProgramText, RefusesUnknownQueueAndBuffer) {
  EXPECT_THROW(parse_program("0 gpu linear\n"), Error);
  EXPECT_THROW(parse_program("0 comp linear %x:f32[2]\n"), Error);
}

TEST(ProgramText, InvalidRunsAreRefused) {
  std::string text = with_runs({{0, 12, 0}}).print();
  for (const char* runs : {"0", "0:x", "0:12*", "0:12*0+1", "0:12*-1+1", "0:12*2",
                           "0:12*99999999999+1", "0:12*4096+1*4097+1"}) {
    std::string changed = text;
    changed.replace(changed.find("runs=0:12") + 5, 4, runs);
    EXPECT_THROW(parse_program(changed), Error) << runs;
  }
}

// A model with many layers has hundreds of parameters, and hundreds of gaps between its gradients.
TEST(Instructions, RepeatedOperandsHaveNoLimit) {
  for (const char* name : {"zero", "lease", "release"})
    EXPECT_EQ(operand_rules(instruction(name), 5000).size(), 5000u) << name;
}

TEST(Verify, AcceptsTheSample) { EXPECT_NO_THROW(verify(sample(), {})); }

TEST(Verify, FindsErrors) {
  Program no_wait = sample();
  no_wait.instrs[1].waits.clear();
  EXPECT_THROW(verify(no_wait, {}), Error);
  Program outside = sample();
  outside.instrs[1].operands[0].begin = 1020;
  EXPECT_THROW(verify(outside, {}), Error);
  Program unwritten = sample();
  unwritten.instrs.erase(unwritten.instrs.begin());
  EXPECT_THROW(verify(unwritten, {.physical = false}), Error);
  Program small_arena = sample();
  small_arena.arenas[0].transient = 1000;
  EXPECT_THROW(verify(small_arena, {}), Error);
  Program dead = sample();
  dead.instrs.push_back(dead.instrs[1]);
  EXPECT_THROW(verify(dead, {.physical = false}), Error);
}

TEST(Layout, PadsAndDividesEvenly) {
  Layout l =
      make_layout({{"wte", 100000}, {"h.0.w", 1000}, {"h.0.v", 300}, {"h.1.w", 1000}, {"b", 3}},
                  {2}, 1 << 20, 64);
  ASSERT_EQ(l.buckets.size(), 4u);
  EXPECT_EQ(l.buckets[0].name, "wte");
  EXPECT_EQ(l.buckets[1].name, "h.0");
  // The bucket has parameters of 1024 and 512 elements.
  EXPECT_EQ(l.buckets[1].numel, 1536);
  EXPECT_EQ(l.place(ParamId(2)).begin, 1024);
  EXPECT_EQ(l.buckets[3].name, "small#0");
  EXPECT_TRUE(l.buckets[3].persistent);
  EXPECT_EQ(l.buckets[3].numel, 512);
  for (const Bucket& b : l.buckets) EXPECT_EQ(b.numel % (2 * kGranule), 0);
  auto holes = l.buckets[1].padding();
  ASSERT_EQ(holes.size(), 2u);
  EXPECT_EQ(holes[0], (std::pair<int64_t, int64_t>{1000, 24}));
  EXPECT_EQ(holes[1], (std::pair<int64_t, int64_t>{1324, 212}));
}

TEST(Layout, AParameterWithASeparateBucketDoesNotSplitTheOthers) {
  Layout l = make_layout(
      {{"h.0.a", 512}, {"h.0.t", 700, false, true}, {"h.0.c", 512}, {"b", 3, false, true}}, {1},
      1 << 20, 64);
  ASSERT_EQ(l.buckets.size(), 3u);
  std::vector<int32_t> bucket_of;
  for (BucketId b : l.bucket_of) bucket_of.push_back(b.number());
  EXPECT_EQ(bucket_of, (std::vector<int32_t>{0, 1, 0, 2}));
  EXPECT_EQ(l.buckets[1].name, "h.0#1");
  EXPECT_EQ(l.buckets[1].numel, 768);
  EXPECT_TRUE(l.buckets[2].persistent);
}

TEST(Layout, SmallParametersPersistUpToATotalLimit) {
  IdVector<ParamId, ParamSpec> params{
      {"h.0.a", 300}, {"h.0.b", 300}, {"h.0.c", 100}, {"h.1.d", 50}};
  auto persistent = [&](int64_t most) {
    Layout l = make_layout(params, {1}, 1 << 20, 512, most);
    std::vector<bool> out;
    for (BucketId b : l.bucket_of) out.push_back(l.buckets[b].persistent);
    return out;
  };
  EXPECT_EQ(persistent(750), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(persistent(749), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(persistent(400), (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(persistent(0), (std::vector<bool>(4, false)));
}

TEST(Layout, EndsABucketAtTheBucketSize) {
  Layout l = make_layout({{"h.0.a", 512}, {"h.0.b", 512}, {"h.0.c", 512}}, {1}, 1024, 0);
  ASSERT_EQ(l.buckets.size(), 2u);
  EXPECT_EQ(l.buckets[0].params.size(), 2u);
  EXPECT_EQ(l.buckets[1].name, "h.0#1");
}

}  // namespace
}  // namespace ds
