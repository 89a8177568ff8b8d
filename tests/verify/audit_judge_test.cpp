// Tests how an audit judges results: by groups of ranks, orders of sums and error bounds.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/random.h"
#include "diagnostics/audit_comm.h"
#include "diagnostics/audit_kernel.h"
#include "support/ranks.h"

namespace ds {
namespace {

TensorView view_of(std::vector<float>& values) {
  TensorView view;
  view.data = values.data();
  view.dtype = DS_DTYPE_F32;
  view.rank = 1;
  view.dims[0] = static_cast<int64_t>(values.size());
  return view;
}

// Returns values of many magnitudes, so that the order of a sum changes its last bits.
std::vector<float> values_of(int rank, size_t count) {
  std::vector<float> out(count);
  RandomStream stream{1, 0, static_cast<uint32_t>(rank), 0};
  for (size_t i = 0; i < count; ++i) {
    std::array<uint32_t, 4> draw = stream.block(i);
    out[i] = std::ldexp(uniform01(draw[0]) - 0.5F, static_cast<int>(draw[1] % 12));
  }
  return out;
}

using Collective = void (*)(Communicator&, const std::vector<float>& in, std::vector<float>& out);

// Runs a collective over all ranks, changes rank 2's result by `spoil`, and returns the verdicts of
// all ranks.
std::vector<Verdict> judged(Op op, size_t in_count, size_t out_count, Collective run,
                            const std::function<void(std::vector<float>&)>& spoil) {
  constexpr int kRanks = 4;
  std::vector<Verdict> verdicts(kRanks);
  test::run_ranks(kRanks, [&](Communicator& comm) {
    std::vector<float> in = values_of(comm.rank(), in_count), out(out_count);
    run(comm, in, out);
    if (comm.rank() == 2) spoil(out);
    AuditGroup group{{0, 1, 2, 3}, static_cast<size_t>(comm.rank())};
    verdicts[static_cast<size_t>(comm.rank())] =
        judge_collective(op, group, view_of(in), view_of(out), comm, "test");
  });
  return verdicts;
}

// The audit judges this many elements in several pieces.
constexpr size_t kCount = 100003;

struct Case {
  Op op;
  size_t in, out;
  Collective run;
};
const Case kCases[] = {
    {Op::all_gather, kCount, 4 * kCount,
     [](Communicator& comm, const std::vector<float>& in, std::vector<float>& out) {
       comm.all_gather(in.data(), out.data(), in.size() * 4, "test");
     }},
    {Op::reduce_scatter, 4 * kCount, kCount,
     [](Communicator& comm, const std::vector<float>& in, std::vector<float>& out) {
       comm.reduce_scatter(in.data(), out.data(), out.size(), DS_DTYPE_F32, "test");
     }},
    {Op::all_reduce, kCount, kCount,
     [](Communicator& comm, const std::vector<float>& in, std::vector<float>& out) {
       comm.all_reduce(in.data(), out.data(), out.size(), DS_DTYPE_F32, "test");
     }},
    {Op::all_to_all, 4 * kCount, 4 * kCount,
     [](Communicator& comm, const std::vector<float>& in, std::vector<float>& out) {
       comm.all_to_all(in.data(), out.data(), in.size(), "test");
     }}};

TEST(JudgeCollective, AcceptsTheResultsOfCollectives) {
  for (const Case& c : kCases) {
    for (const Verdict& v : judged(c.op, c.in, c.out, c.run, [](std::vector<float>&) {})) {
      EXPECT_TRUE(v.passed()) << instruction(c.op).name << " " << v.where;
      EXPECT_EQ(v.how, Verdict::How::bits);
    }
  }
}

TEST(JudgeCollective, DetectsAWrongBitOnOneRank) {
  for (const Case& c : kCases) {
    std::vector<Verdict> all = judged(c.op, c.in, c.out, c.run, [](std::vector<float>& out) {
      uint32_t bits = 0;
      std::memcpy(&bits, &out[70000], sizeof bits);
      bits ^= 1;
      std::memcpy(&out[70000], &bits, sizeof bits);
    });
    EXPECT_TRUE(all[0].passed() && all[1].passed() && all[3].passed()) << instruction(c.op).name;
    EXPECT_FALSE(all[2].passed()) << instruction(c.op).name;
    EXPECT_NE(all[2].where.find("[70000]"), std::string::npos) << all[2].where;
  }
}

// This sums in the order of ranks, whereas the collective first sums neighbours.
TEST(JudgeCollective, DetectsAnotherOrderOfSums) {
  std::vector<Verdict> all =
      judged(Op::all_reduce, kCount, kCount, kCases[2].run, [](std::vector<float>& out) {
        std::vector<std::vector<float>> given;
        for (int r = 0; r < 4; ++r) given.push_back(values_of(r, kCount));
        for (size_t i = 0; i < out.size(); ++i) {
          out[i] = ((given[0][i] + given[1][i]) + given[2][i]) + given[3][i];
        }
      });
  EXPECT_FALSE(all[2].passed());
}

// Groups of two ranks: neighbours, and ranks at a distance of 2.
TEST(JudgeCollective, JudgesCollectivesInGroups) {
  test::run_ranks(4, [](Communicator& comm) {
    for (int stride : {1, 2}) {
      int first = stride == 1 ? comm.rank() / 2 * 2 : comm.rank() % 2;
      AuditGroup group{{first, first + stride}, static_cast<size_t>(comm.rank() == first ? 0 : 1)};
      std::vector<float> in = values_of(comm.rank(), 64), out;
      for (int r : group.ranks) {
        std::vector<float> theirs = values_of(r, 64);
        out.insert(out.end(), theirs.begin(), theirs.end());
      }
      Verdict good =
          judge_collective(Op::all_gather, group, view_of(in), view_of(out), comm, "test");
      EXPECT_TRUE(good.passed()) << good.where;
      std::swap(out[3], out[67]);
      Verdict wrong =
          judge_collective(Op::all_gather, group, view_of(in), view_of(out), comm, "test");
      EXPECT_FALSE(wrong.passed());
    }
  });
}

// Runs an operation once in f32 with the reference kernels, changes its output by `spoil`, and
// returns the verdict.
Verdict judged(const std::string& op, std::vector<std::vector<float>> rows, size_t out_count,
               const std::function<void(std::vector<float>&)>& spoil) {
  std::vector<float> y(out_count);
  KernelRegistry reference;
  register_ref(reference);
  static const Attrs kNone;
  std::vector<TensorView> in;
  for (std::vector<float>& row : rows) {
    in.push_back(view_of(row));
    in.back().rank = 2;
    std::swap(in.back().dims[0], in.back().dims[1]);
  }
  TensorView out = view_of(y);
  out.rank = 2;
  std::swap(out.dims[0], out.dims[1]);
  ThreadTeam team(1);
  std::vector<DType> types(in.size(), DS_DTYPE_F32);
  const DType f32[] = {DS_DTYPE_F32};
  reference.find({op, types, f32, kNone}).run({in, {&out, 1}, kNone, {}, 0, team});
  spoil(y);
  KernelRun run;
  run.op = op;
  run.attrs = &kNone;
  for (const TensorView& view : in) run.in.emplace_back(view);
  run.before.emplace_back(out);
  run.after.emplace_back(out);
  return judge_kernel(reference, run);
}

Verdict judged_gelu(const std::function<void(std::vector<float>&)>& spoil) {
  return judged("gelu", {values_of(0, 300)}, 300, spoil);
}

TEST(JudgeKernel, ComparesWithTheErrorBound) {
  Verdict right = judged_gelu([](std::vector<float>&) {});
  EXPECT_EQ(right.how, Verdict::How::bound);
  EXPECT_TRUE(right.passed()) << right.where;
  EXPECT_GT(right.error, 0);
  Verdict wrong = judged_gelu([](std::vector<float>& y) { y[17] += 1e-2F; });
  EXPECT_FALSE(wrong.passed());
  EXPECT_NEAR(wrong.error, 1e-2, 1e-4);
  EXPECT_NE(wrong.where.find("output 0[17]"), std::string::npos) << wrong.where;
  EXPECT_FALSE(judged_gelu([](std::vector<float>& y) { y[0] = std::nanf(""); }).passed());
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(judged_gelu([](std::vector<float>& y) { y[0] = kInfinity; }).passed());
}

// 1.2e39 - 1.2e39 is 0, but the sum overflows in f32. The audit accepts any result that is not
// finite if the sum overflows or an input is infinite.
TEST(JudgeKernel, AcceptsResultsThatOverflow) {
  std::vector<std::vector<float>> in{{3e38F, 3e38F}, {4, -4}};
  Verdict overflow =
      judged("linear", in, 1, [](std::vector<float>& y) { EXPECT_FALSE(std::isfinite(y[0])); });
  EXPECT_TRUE(overflow.passed()) << overflow.where;
  EXPECT_FALSE(judged("linear", in, 1, [](std::vector<float>& y) { y[0] = 5; }).passed());
  std::vector<std::vector<float>> blown{{std::numeric_limits<float>::infinity(), 1}, {1, 1}};
  EXPECT_TRUE(
      judged("linear", blown, 1, [](std::vector<float>& y) { y[0] = std::nanf(""); }).passed());
  EXPECT_FALSE(judged("linear", blown, 1, [](std::vector<float>& y) { y[0] = 5; }).passed());
  std::vector<std::vector<float>> small{{3, 3}, {4, -4}};
  EXPECT_FALSE(
      judged("linear", small, 1, [](std::vector<float>& y) { y[0] = std::nanf(""); }).passed());
}

}  // namespace
}  // namespace ds
