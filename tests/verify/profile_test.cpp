#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/program/builder.h"
#include "diagnostics/profile_table.h"

namespace ds {
namespace {

constexpr double kMs = 1e-3;

// Returns a program with a fetch, two products of 10 x 8 by 8 x 4 (linear), and a save that runs at
// the same time.
Program program() {
  Program start;
  start.bound = 10;
  ProgramBuilder b(std::move(start));
  BufferId host = b.transient("w", DS_DTYPE_BF16, 32, Tier::host),
           w = b.transient("w.dev", DS_DTYPE_BF16, 32, Tier::device),
           x = b.transient("x", DS_DTYPE_BF16, 80, Tier::device),
           y = b.transient("y", DS_DTYPE_BF16, 40, Tier::device);
  b.emit(Op::fetch, {flat(b.buffer(host), host, 0, 32, Access::read),
                     flat(b.buffer(w), w, 0, 32, Access::write)});
  for (int i = 0; i < 2; ++i) {
    b.emit(make_instr(instruction("linear"),
                      {{x, 0, {DS_DTYPE_BF16, Shape{Dim::n(), 8}}, Access::read},
                       {w, 0, {DS_DTYPE_BF16, Shape{4, 8}}, Access::read},
                       {y, 0, {DS_DTYPE_BF16, Shape{Dim::n(), 4}}, Access::write}}));
  }
  b.emit(Op::save, {flat(b.buffer(host), host, 0, 32, Access::read)});
  return b.take();
}

std::vector<Trace::Span> spans() {
  return {{"copy", "fetch w.dev", 0, 1'000'000, 0, 0},
          {"write", "save w", 0, 9'000'000, 4096},
          {"comp", "linear y", 1'000'000, 3'000'000, 0, 1},
          {"comp", "linear y", 3'000'000, 7'000'000, 0, 2}};
}

// Returns peak rates at which the 640 flops of each linear need 6.4 us, its 304 bytes 3.04 us, and
// the 128 bytes of the fetch 1.28 us.
Peak peak() { return {1e6, 1e8, 1e8}; }

const ProfileRow& row(const ProfileTable& table, const std::string& name) {
  for (const ProfileRow& r : table.rows) {
    if (r.name == name) return r;
  }
  raise(DS_ERROR_NOT_FOUND, "no row '{}'", name);
}

TEST(Profile, SumsByOperationAndComparesWithTheLimit) {
  Program p = program();
  StepProfile sums(p);
  sums.add(spans(), 0, 10'000'000);
  sums.add(spans(), 0, 12'000'000);
  ProfileTable table = sums.table(peak());
  ASSERT_EQ(table.rows.size(), 3u);
  const ProfileRow& linear = row(table, "linear");
  EXPECT_EQ(linear.calls, 2);
  EXPECT_NEAR(linear.seconds, 6 * kMs, 1e-12);
  EXPECT_EQ(linear.flops, 2 * 640);
  EXPECT_EQ(linear.bytes, 2 * 304);
  EXPECT_NEAR(linear.limit, 2 * 6.4e-6, 1e-15);
  EXPECT_NEAR(row(table, "fetch").limit, 1.28e-6, 1e-15);
  EXPECT_NEAR(table.step, 11 * kMs, 1e-12);
  EXPECT_NEAR(table.between, 4 * kMs, 1e-12);
  const ProfileRow& save = row(table, "save");
  EXPECT_TRUE(save.beside);
  EXPECT_EQ(save.bytes, 4096);
  EXPECT_NEAR(save.seconds, 9 * kMs, 1e-12);
  std::string text = table.text();
  // 54.5 % is the share of linear in the step; 0.2 % is the limit of linear as a share of its time.
  EXPECT_NE(text.find("54.5 %"), std::string::npos) << text;
  EXPECT_NE(text.find("0.2 %"), std::string::npos) << text;
}

TEST(Profile, SharesOfALimitStayWithin100Percent) {
  Program p = program();
  StepProfile sums(p);
  sums.add(spans(), 0, 10'000'000);
  EXPECT_EQ(sums.table(peak()).text().find(">100 %"), std::string::npos);
  Peak slow = peak();
  // The measured time of linear is shorter than this rate allows.
  slow.bf16_flops = 640 * 2 / (1.74 * 6 * kMs);
  std::string text = sums.table(slow).text();
  EXPECT_EQ(text.find("174.0 %"), std::string::npos) << text;
  EXPECT_NE(text.find(">100 %\n"), std::string::npos) << text;
  EXPECT_NE(text.find(">100 %: faster than the limit"), std::string::npos) << text;
}

TEST(Profile, ByInstructionListsEachCall) {
  Program p = program();
  StepProfile sums(p);
  sums.add(spans(), 0, 10'000'000);
  ProfileTable table = sums.table(peak(), true);
  ASSERT_EQ(table.rows.size(), 4u);
  EXPECT_NEAR(row(table, "2 linear y").seconds, 4 * kMs, 1e-12);
  EXPECT_NEAR(row(table, "1 linear y").seconds, 2 * kMs, 1e-12);
}

TEST(Profile, RefusesSpansOfAnotherProgram) {
  Program p = program();
  StepProfile sums(p);
  std::vector<Trace::Span> few = spans(), other = spans();
  few.pop_back();
  other[0].name = "store w";
  EXPECT_THROW(sums.add(few, 0, 1), Error);
  EXPECT_THROW(StepProfile(p).add(other, 0, 1), Error);
}

TEST(Profile, PeaksArePlausible) {
  ThreadTeam one(1);
  Peak measured = measure_peak(one);
  EXPECT_GT(measured.bytes, 1e8);
  EXPECT_GE(measured.bf16_flops, measured.f32_flops);
  EXPECT_EQ(measured.flops(DS_DTYPE_F64), measured.f32_flops / 2);
}

}  // namespace
}  // namespace ds
