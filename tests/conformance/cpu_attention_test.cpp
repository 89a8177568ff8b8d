// Attention over more than one block of keys, sequences too long for one pass, and extreme scores.
#include <gtest/gtest.h>

#include <cmath>

#include "support/conformance.h"

namespace ds::test {
namespace {

class CpuAttention : public testing::Test {
 protected:
  void SetUp() override {
    register_cpu(cpu_);
    register_ref(ref_);
  }
  const KernelImpl& cpu(const char* op) { return implementation(cpu_, op, "cpu"); }
  // The cases of both ops; statistics from a f64 run of the reference.
  std::vector<OpCase> cases(int64_t rows, int64_t heads, int64_t depth, int64_t seq) {
    Attrs attrs{{"heads", heads}, {"seq", seq}};
    int64_t width = heads * depth;
    OpCase forward{"attention", attrs, {random_tensor(DS_DTYPE_F64, {rows, 3 * width}, 1)}, seq + depth};
    std::vector<Tensor> y = run_case(implementation(ref_, "attention", "ref"), forward, DS_DTYPE_F64, one_);
    OpCase backward{"attention_dx",
                    attrs,
                    {random_tensor(DS_DTYPE_F64, {rows, width}, 2), forward.in[0], y[0], y[1]},
                    seq + depth};
    return {forward, backward};
  }
  KernelRegistry cpu_, ref_;
  ThreadTeam one_{1}, three_{3};
};

TEST_F(CpuAttention, BlocksOfKeysMeet) {
  for (auto [rows, heads, depth, seq] :
       {std::array<int64_t, 4>{300, 1, 20, 300}, {290, 2, 33, 145}, {70, 1, 264, 70}}) {
    for (const OpCase& c : cases(rows, heads, depth, seq)) {
      for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
        Deviation d = deviation(cpu(c.op.c_str()), c, dtype, three_);
        EXPECT_LT(d.error, 8) << c.label() << " " << dtype_name(dtype) << " " << d.where;
      }
    }
  }
}

TEST_F(CpuAttention, BitsDoNotDependOnTheTeam) {
  for (const OpCase& c : cases(290, 2, 33, 145)) {
    EXPECT_TRUE(run_case(cpu(c.op.c_str()), c, DS_DTYPE_BF16, three_) ==
                run_case(cpu(c.op.c_str()), c, DS_DTYPE_BF16, one_))
        << c.op;
  }
}

TEST_F(CpuAttention, SequencesTooLongForScratchTakeTwoPasses) {
  // Buffers of one block of depth 32 take 241 KiB; dq of one block 16 KiB more, of 600 rows 75 KiB more.
  ThreadTeam small(2, 270 << 10);
  OpCase c = cases(1200, 1, 32, 600)[1];
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16}) {
    EXPECT_TRUE(run_case(cpu("attention_dx"), c, dtype, small) ==
                run_case(cpu("attention_dx"), c, dtype, one_));
  }
}

TEST_F(CpuAttention, LargeScoresStayFinite) {
  OpCase c = cases(140, 1, 8, 140)[0];
  for (int64_t e = 0; e < c.in[0].numel(); ++e) c.in[0].set(e, c.in[0].at(e) * 64);  // scores to 8,000
  std::vector<Tensor> y = run_case(cpu("attention"), c, DS_DTYPE_F32, one_);
  for (const Tensor& t : y) {
    for (int64_t e = 0; e < t.numel(); ++e) ASSERT_TRUE(std::isfinite(t.at(e)));
  }
  Deviation d = deviation(cpu("attention"), c, DS_DTYPE_F32, one_);
  EXPECT_LT(d.error, 5000) << d.where;  // exp amplifies a score's rounding by its size
}

TEST_F(CpuAttention, NanReachesTheOutput) {
  OpCase c = cases(20, 1, 8, 20)[0];
  c.in[0].set(5 * 24, std::nan(""));  // q of row 5
  std::vector<Tensor> y = run_case(cpu("attention"), c, DS_DTYPE_F32, one_);
  EXPECT_TRUE(std::isnan(y[0].at(5 * 8)));
  EXPECT_FALSE(std::isnan(y[0].at(4 * 8)));
}

// The bound that gelu.cpp states, over the whole range.
TEST(CpuGelu, RelativeErrorIsBounded) {
  KernelRegistry registry;
  register_cpu(registry);
  ThreadTeam team(1);
  constexpr int64_t kPoints = 40001;
  Tensor x(DS_DTYPE_F32, {kPoints}), y(DS_DTYPE_F32, {kPoints});
  for (int64_t e = 0; e < kPoints; ++e) x.set(e, -4.5 + static_cast<double>(e) * (30 / 40000.0));
  std::vector<TensorView> in{x.view()}, out{y.view()};
  launch(implementation(registry, "gelu", "cpu"), {}, in, out, team);
  double worst = 0;
  for (int64_t e = 0; e < kPoints; ++e) {
    double v = x.at(e), u = 0.7978845608028654 * (v + 0.044715 * v * v * v);
    double want = v / (1 + std::exp(-2 * u));
    worst = std::max(worst, std::abs(y.at(e) - want) / std::abs(want));
  }
  EXPECT_LT(worst, 40 * 0x1p-24);
}

TEST(CpuGelu, EndsAreFlat) {
  KernelRegistry registry;
  register_cpu(registry);
  ThreadTeam team(1);
  const double given[] = {1e30, -1e30, 100, -100, 0, std::nan("")};
  Tensor x(DS_DTYPE_F32, {6}), one(DS_DTYPE_F32, {6}), y(DS_DTYPE_F32, {6}), dx(DS_DTYPE_F32, {6});
  for (int64_t e = 0; e < 6; ++e) x.set(e, given[e]);
  for (int64_t e = 0; e < 6; ++e) one.set(e, 1);
  std::vector<TensorView> in{x.view()}, out{y.view()}, in_dx{one.view(), x.view()}, out_dx{dx.view()};
  launch(implementation(registry, "gelu", "cpu"), {}, in, out, team);
  launch(implementation(registry, "gelu_dx", "cpu"), {}, in_dx, out_dx, team);
  const double want_dx[] = {1, 0, 1, 0, 0.5};
  for (int64_t e = 0; e < 5; ++e) {
    EXPECT_NEAR(y.at(e), std::max(x.at(e), 0.0), 1e-30) << given[e];
    EXPECT_NEAR(dx.at(e), want_dx[e], 1e-30) << given[e];
  }
  EXPECT_TRUE(std::isnan(y.at(5)));
  EXPECT_TRUE(std::isnan(dx.at(5)));
}

}  // namespace
}  // namespace ds::test
