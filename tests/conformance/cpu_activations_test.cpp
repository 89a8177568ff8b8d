// Tests activations of the cpu family over their whole range: their relative errors, and their
// values at the extremes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/conformance.h"

namespace ds::test {
namespace {

class CpuActivations : public testing::Test {
 protected:
  void SetUp() override { register_cpu(registry_); }
  // Runs `op` on f32 x. For a backward op (_dx), returns the gradient for dy = 1.
  Tensor run(const std::string& op, const Attrs& attrs, const Tensor& x) {
    Tensor one(DS_DTYPE_F32, x.dims()), y(DS_DTYPE_F32, x.dims());
    for (int64_t e = 0; e < x.numel(); ++e) one.set(e, 1);
    std::vector<TensorView> in{x.view()}, out{y.view()};
    if (op.ends_with("_dx")) in.insert(in.begin(), one.view());
    launch(implementation(registry_, op, "cpu"), attrs, in, out, team_);
    return y;
  }
  // Returns the largest relative error over [low, high], in units of roundoff.
  double worst(const std::string& op, const Attrs& attrs, double low, double high,
               double (*want)(double)) {
    constexpr int64_t kPoints = 40001;
    Tensor x(DS_DTYPE_F32, {kPoints});
    for (int64_t e = 0; e < kPoints; ++e) {
      x.set(e, low + (high - low) * static_cast<double>(e) / (kPoints - 1));
    }
    Tensor y = run(op, attrs, x);
    double error = 0;
    for (int64_t e = 0; e < kPoints; ++e) {
      double right = want(x.at(e));
      if (right != 0) error = std::max(error, std::abs(y.at(e) - right) / std::abs(right));
    }
    return error * 0x1p24;
  }
  KernelRegistry registry_;
  ThreadTeam team_{1};
};

double gelu_tanh(double x) {
  return x / (1 + std::exp(-2 * 0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
double gelu_erf(double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }
double silu(double x) { return x / (1 + std::exp(-x)); }
double laplace(double x) { return 0.5 * std::erfc(-(x - 0.707107) / (0.282095 * std::sqrt(2.0))); }
double softcap_30(double x) { return 30 * std::tanh(x / 30); }

// Tests bounds of relative errors. src/kernels/cpu/README.md states that of gelu.
TEST_F(CpuActivations, RelativeErrorIsBounded) {
  EXPECT_LT(worst("gelu", {}, -4.5, 25.5, gelu_tanh), 40);
  // Without fused multiply-add, exp(-x^2/2) inherits the rounding error of the square.
  EXPECT_LT(worst("gelu", {{"form", "erf"}}, -12, 12, gelu_erf), 100);
  EXPECT_LT(worst("gelu", {{"form", "erf"}}, -3, 3, gelu_erf), 16);
  EXPECT_LT(worst("silu", {}, -80, 30, silu), 8);
  EXPECT_LT(
      worst("gelu", {{"form", "10"}}, -3, 25, [](double x) { return std::min(gelu_erf(x), 10.0); }),
      16);
  EXPECT_LT(worst("tanh", {}, -9, 9, [](double x) { return std::tanh(x); }), 8);
  EXPECT_LT(worst("relu2", {}, -3, 9, [](double x) { return x > 0 ? x * x : 0; }), 2);
  EXPECT_LT(worst("laplace", {}, 0, 3, laplace), 32);
  EXPECT_LT(worst("sigmoid", {}, -80, 30, [](double x) { return 1 / (1 + std::exp(-x)); }), 8);
  EXPECT_LT(
      worst("quick_gelu", {}, -8, 20, [](double x) { return x / (1 + std::exp(-1.702 * x)); }), 24);
  EXPECT_LT(worst("softplus", {}, -80, 30,
                  [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }),
            8);
  EXPECT_LT(worst("softcap", {{"cap", 30.0}}, -300, 300, softcap_30), 8);
  EXPECT_LT(worst("softcap", {{"cap", 30.0}}, -1e-3, 1e-3, softcap_30), 8);
}

TEST_F(CpuActivations, ExtremesAreFlat) {
  const double given[] = {1e30, -1e30, 100, -100, 0, std::nan("")};
  const double want_dx[] = {1, 0, 1, 0, 0.5};
  Tensor x(DS_DTYPE_F32, {6});
  for (int64_t e = 0; e < 6; ++e) x.set(e, given[e]);
  struct Row {
    std::string op;
    Attrs attrs;
  };
  for (const Row& row : {Row{"gelu", {}}, Row{"gelu", {{"form", "erf"}}}, Row{"silu", {}}}) {
    Tensor y = run(row.op, row.attrs, x), dx = run(row.op + "_dx", row.attrs, x);
    for (int64_t e = 0; e < 5; ++e) {
      EXPECT_NEAR(y.at(e), std::max(x.at(e), 0.0), 1e-30)
          << row.op << row.attrs.print() << " " << given[e];
      EXPECT_NEAR(dx.at(e), want_dx[e], 1e-30) << row.op << row.attrs.print() << " " << given[e];
    }
    EXPECT_TRUE(std::isnan(y.at(5)));
    EXPECT_TRUE(std::isnan(dx.at(5)));
  }
  Tensor capped = run("softcap", {{"cap", 2.0}}, x);
  const double want[] = {2, -2, 2, -2, 0};
  for (int64_t e = 0; e < 5; ++e) EXPECT_EQ(capped.at(e), want[e]);
  EXPECT_TRUE(std::isnan(capped.at(5)));
}

// The kernel advances angles from position to position, while the reference computes each angle.
// The case has several blocks of positions and several sequences.
TEST_F(CpuActivations, RopeIsAccurateAtFarPositions) {
  ThreadTeam three(3);
  OpCase c{"rope",
           {{"heads", int64_t{2}}, {"seq", int64_t{1031}}, {"theta", 10000.0}},
           {random_tensor(DS_DTYPE_F64, {2100, 44}, 1)}};
  for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
    Deviation d = deviation(implementation(registry_, "rope", "cpu"), c, dtype, three);
    EXPECT_LT(d.error, kMostUnits) << dtype_name(dtype) << " " << d.where;
  }
}

}  // namespace
}  // namespace ds::test
