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

}  // namespace
}  // namespace ds::test
