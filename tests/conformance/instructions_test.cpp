// Compares update and bookkeeping instructions of the reference with values computed in f64.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/conformance.h"

namespace ds::test {
namespace {

class Instructions : public testing::Test {
 protected:
  void SetUp() override { register_ref(registry_); }
  std::vector<Tensor> run(const InstructionCase& c) {
    return run_case(implementation(registry_, c.op, "ref"), c, team_);
  }
  KernelRegistry registry_;
  ThreadTeam team_{1};
};

TEST_F(Instructions, AdamwFollowsTheFormula) {
  int64_t moved = 0;
  for (const InstructionCase& c : instruction_cases()) {
    if (c.op != "adamw") continue;
    std::vector<Tensor> out = run(c);
    if (c.scalars.skip) {
      for (size_t i = 0; i + 1 < out.size(); ++i) EXPECT_TRUE(out[i] == c.out[i]) << "output " << i;
      EXPECT_TRUE(out.back() == Tensor(c.out[0]).as(out.back().dtype()))
          << "param follows its master";
      continue;
    }
    const GroupScalars& group = c.scalars.group;
    double b1 = group.beta1, b2 = group.beta2, wd = group.weight_decay;
    bool l2 = c.attrs.integer("l2") != 0;
    double t = static_cast<double>(c.scalars.updates + 1), c1 = 1 - std::pow(b1, t),
           c2 = 1 - std::pow(b2, t);
    if (c.attrs.integer_or("bias_correction", 1) == 0) c1 = c2 = 1;
    for (int64_t e = 0; e < out[0].numel(); ++e) {
      double p = c.out[0].at(e), g = c.in[0].at(e) * c.scalars.grad_scale;
      if (l2) g += wd * p;
      if (!l2) p -= c.scalars.group.lr * wd * p;
      double m = b1 * c.out[1].at(e) + (1 - b1) * g, v = b2 * c.out[2].at(e) + (1 - b2) * g * g;
      p -= c.scalars.group.lr * (m / c1) / (std::sqrt(v / c2) + group.eps);
      EXPECT_NEAR(out[0].at(e), p, 3e-7);
      EXPECT_NEAR(out[1].at(e), m, 3e-7);
      EXPECT_NEAR(out[2].at(e), v, 3e-7);
      EXPECT_EQ(out[3].at(e), Tensor(out[0]).as(out[3].dtype()).at(e));
      moved += out[0].at(e) != c.out[0].at(e);
    }
  }
  EXPECT_GT(moved, 1000);
}

TEST_F(Instructions, SgdFollowsTheFormula) {
  int64_t moved = 0;
  for (const InstructionCase& c : instruction_cases()) {
    if (c.op != "sgd") continue;
    std::vector<Tensor> out = run(c);
    if (c.scalars.skip) {
      for (size_t i = 0; i + 1 < out.size(); ++i) EXPECT_TRUE(out[i] == c.out[i]) << "output " << i;
      EXPECT_TRUE(out.back() == Tensor(c.out[0]).as(out.back().dtype()))
          << "param follows its master";
      continue;
    }
    double momentum = c.scalars.group.momentum;
    for (int64_t e = 0; e < out[0].numel(); ++e) {
      double up = c.attrs.integer_or("maximize", 0) != 0 ? -1 : 1;
      double p = c.out[0].at(e),
             g = up * c.in[0].at(e) * c.scalars.grad_scale + c.scalars.group.weight_decay * p;
      double share = c.scalars.updates > 0 ? 1 - c.attrs.real_or("dampening", 0) : 1;
      double buffer = momentum * c.out[1].at(e) + share * g;
      p -= c.scalars.group.lr * (c.attrs.integer("nesterov") ? g + momentum * buffer : buffer);
      EXPECT_NEAR(out[0].at(e), p, 3e-7);
      EXPECT_NEAR(out[1].at(e), buffer, 3e-7);
      EXPECT_EQ(out[2].at(e), Tensor(out[0]).as(out[2].dtype()).at(e));
      moved += out[0].at(e) != c.out[0].at(e);
    }
  }
  EXPECT_GT(moved, 1000);
}

// Checks the results of an update with one state in every case of `op`. next(p, state, g) computes
// the expected values in f64. Returns the number of elements that moved.
template <typename Next>
int64_t check_one_state(const char* op, const Next& next,
                        const std::function<std::vector<Tensor>(const InstructionCase&)>& run) {
  int64_t moved = 0;
  for (const InstructionCase& c : instruction_cases()) {
    if (c.op != op) continue;
    std::vector<Tensor> out = run(c);
    for (int64_t e = 0; e < out[0].numel(); ++e) {
      double p = c.out[0].at(e), state = c.out[1].at(e);
      if (c.scalars.skip == 0) {
        next(c, p, state, c.in[0].at(e) * c.scalars.grad_scale);
      }
      EXPECT_NEAR(out[0].at(e), p, 3e-7) << op << " " << e;
      EXPECT_NEAR(out[1].at(e), state, 1e-6) << op << " " << e;
      EXPECT_EQ(out[2].at(e), Tensor(out[0]).as(out[2].dtype()).at(e));
      moved += out[0].at(e) != c.out[0].at(e);
    }
  }
  return moved;
}

TEST_F(Instructions, LionFollowsTheFormula) {
  auto next = [](const InstructionCase& c, double& p, double& m, double g) {
    const GroupScalars& group = c.scalars.group;
    double direction = group.beta1 * m + (1 - group.beta1) * g;
    p = p * (1 - group.lr * group.weight_decay) - std::copysign(group.lr, direction);
    m = group.beta2 * m + (1 - group.beta2) * g;
  };
  EXPECT_GT(check_one_state("lion", next, [&](const InstructionCase& c) { return run(c); }), 1000);
}

TEST_F(Instructions, LionStepsDownAtZeroAsDeepSpeedsCpuKernelDoes) {
  InstructionCase c{
      "lion",
      {},
      {Tensor(DS_DTYPE_F32, {256})},
      {Tensor(DS_DTYPE_F32, {256}), Tensor(DS_DTYPE_F32, {256}), Tensor(DS_DTYPE_F32, {256})}};
  c.scalars.group = {.lr = 0.25, .beta1 = 0.9, .beta2 = 0.99};
  std::vector<Tensor> out = run(c);
  for (int64_t e = 0; e < 256; ++e) EXPECT_EQ(out[0].at(e), -0.25);
}

TEST_F(Instructions, AdagradFollowsTheFormula) {
  auto next = [](const InstructionCase& c, double& p, double& sum, double g) {
    const GroupScalars& group = c.scalars.group;
    double t = static_cast<double>(c.scalars.updates);
    g += group.weight_decay * p;
    if (t == 0) sum += c.attrs.real_or("initial", 0);
    sum += g * g;
    p -= group.lr / (1 + t * c.attrs.real_or("lr_decay", 0)) * g / (std::sqrt(sum) + group.eps);
  };
  EXPECT_GT(check_one_state("adagrad", next, [&](const InstructionCase& c) { return run(c); }),
            1000);
}

// With stochastic rounding, a moment that moves by a hundredth of its last bit in every step moves,
// on average, as in f32. With rounding to nearest it does not move.
TEST_F(Instructions, StochasticRoundingIsUnbiased) {
  constexpr int64_t kElements = 4096;
  for (int64_t stochastic : {0, 1}) {
    Tensor zero(DS_DTYPE_F32, {kElements}), m(DS_DTYPE_BF16, {kElements});
    for (int64_t e = 0; e < kElements; ++e) m.set(e, e % 2 == 0 ? 1.0 : -1.5);
    InstructionCase c{"lion", {{"stochastic", stochastic}}, {zero}, {zero, m, zero}};
    c.scalars.group = {.lr = 0, .beta1 = 0.9, .beta2 = 1 - 0x1p-8 / 100};
    double want = 1;
    for (int step = 0; step < 50; ++step) {
      c.scalars.step = step;
      c.scalars.param = 2;
      std::vector<Tensor> out = run(c);
      c.out[1] = out[1];
      want *= c.scalars.group.beta2;
    }
    double even = 0, odd = 0;
    for (int64_t e = 0; e < kElements; e += 2) {
      even += c.out[1].at(e) / (kElements / 2);
      odd += c.out[1].at(e + 1) / (kElements / 2);
    }
    // The last bit is 2^-8 or 2^-7. The means of 2048 walks of 50 steps deviate by less than 1e-4.
    EXPECT_NEAR(even, stochastic ? want : 1, 4e-4) << stochastic;
    EXPECT_NEAR(odd, stochastic ? -1.5 * want : -1.5, 6e-4) << stochastic;
    EXPECT_GT(1 - want, 4 * 4e-4) << "the test sees a moment that stands still";
  }
}

TEST_F(Instructions, LambFollowsTheFormula) {
  for (const InstructionCase& c : instruction_cases()) {
    if (c.op != "lamb_moments" || c.scalars.skip) continue;
    const GroupScalars& group = c.scalars.group;
    bool inside = c.attrs.integer("eps_inside_sqrt") != 0;
    std::vector<Tensor> out = run(c);
    int64_t count = c.in[0].numel(), granules = count / 256;
    std::vector<double> param(static_cast<size_t>(granules)), step(param), u;
    for (int64_t e = 0; e < count; ++e) {
      double p = c.in[1].at(e), g = c.in[0].at(e) * c.scalars.grad_scale;
      double m = group.beta1 * c.out[0].at(e) + (1 - group.beta1) * g;
      double v = group.beta2 * c.out[1].at(e) + (1 - group.beta2) * g * g;
      EXPECT_NEAR(out[0].at(e), m, 3e-7);
      EXPECT_NEAR(out[1].at(e), v, 3e-7);
      u.push_back(m / (inside ? std::sqrt(v + group.eps) : std::sqrt(v) + group.eps) +
                  group.weight_decay * p);
      param[static_cast<size_t>(e / 256)] += p * p;
      step[static_cast<size_t>(e / 256)] += u.back() * u.back();
    }
    for (int64_t k = 0; k < granules; ++k) {
      auto at = static_cast<size_t>(k);
      EXPECT_NEAR(out[2].at(2 * k), param[at], 1e-5 * param[at]);
      EXPECT_NEAR(out[2].at(2 * k + 1), step[at], 1e-5 * step[at]);
    }
    Tensor ratios = random_tensor(DS_DTYPE_F32, {granules}, 8);
    InstructionCase last{"lamb", c.attrs, {out[0], out[1], ratios}, {c.in[1], c.in[1]}, c.scalars};
    std::vector<Tensor> next = run(last);
    double t = static_cast<double>(c.scalars.updates + 1);
    double rate =
        group.lr * std::sqrt(1 - std::pow(group.beta2, t)) / (1 - std::pow(group.beta1, t));
    for (int64_t e = 0; e < count; ++e) {
      double want = c.in[1].at(e) - rate * ratios.at(e / 256) * u[static_cast<size_t>(e)];
      EXPECT_NEAR(next[0].at(e), want, 1e-6 + 1e-5 * std::abs(u[static_cast<size_t>(e)]));
    }
  }
}

TEST_F(Instructions, LambRatiosCoverWholeParameters) {
  // There are two parameters. The first has two runs of granules and the norms 5 and 10; the second
  // has no step.
  Tensor norms(DS_DTYPE_F64, {10});
  const double squares[] = {9, 36, 1, 1, 4, 0, 16, 64, 7, 7};
  for (int64_t i = 0; i < 10; ++i) norms.set(i, squares[i]);
  InstructionCase c{"lamb_ratios",
                    {{"min_coeff", 0.01}, {"max_coeff", 10.0}},
                    {norms},
                    {Tensor(DS_DTYPE_F32, {5})}};
  c.runs = {{3, 4, 0, 4}, {0, 1, 0, 4}, {2, 3, 0, 9}};
  std::vector<Tensor> out = run(c);
  const double want[] = {0.5, 0, 1, 0.5, 0};
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(out[0].at(i), want[i]) << i;
  c.attrs.set("max_coeff", 0.25);
  EXPECT_EQ(run(c)[0].at(0), 0.25);
  c.attrs.set("max_coeff", 4.0);
  c.attrs.set("min_coeff", 2.0);
  EXPECT_EQ(run(c)[0].at(3), 2.0);
}

TEST_F(Instructions, AccumulateOverwritesOrAdds) {
  Tensor x = random_tensor(DS_DTYPE_F32, {256}, 1), acc = random_tensor(DS_DTYPE_F32, {256}, 2),
         nan = acc;
  nan.poison();
  EXPECT_TRUE(run({"accumulate", {{"beta", int64_t{0}}}, {x}, {nan}})[0] == x);
  Tensor sum = run({"accumulate", {{"beta", int64_t{1}}}, {x}, {acc}})[0];
  for (int64_t e = 0; e < 256; ++e) EXPECT_EQ(sum.at(e), static_cast<float>(x.at(e) + acc.at(e)));
}

TEST_F(Instructions, AccumulateWidensItsInput) {
  Tensor x = random_tensor(DS_DTYPE_F32, {256}, 1).as(DS_DTYPE_BF16), nan(DS_DTYPE_F32, {256});
  Tensor acc = random_tensor(DS_DTYPE_F32, {256}, 2);
  nan.poison();
  Tensor wide = run({"accumulate", {{"beta", int64_t{0}}}, {x}, {nan}})[0];
  Tensor sum = run({"accumulate", {{"beta", int64_t{1}}}, {x}, {acc}})[0];
  for (int64_t e = 0; e < 256; ++e) {
    EXPECT_EQ(wide.at(e), x.at(e));
    EXPECT_EQ(sum.at(e), static_cast<float>(x.at(e) + acc.at(e)));
  }
}

TEST_F(Instructions, AccumulateRoundsTheSumOnce) {
  for (DType dtype : {DS_DTYPE_BF16, DS_DTYPE_F16}) {
    Tensor x = random_tensor(DS_DTYPE_F32, {256}, 1),
           acc = random_tensor(DS_DTYPE_F32, {256}, 2).as(dtype);
    Tensor sum = run({"accumulate", {{"beta", int64_t{1}}}, {x}, {acc}})[0], want = x;
    for (int64_t e = 0; e < 256; ++e) want.set(e, static_cast<float>(x.at(e) + acc.at(e)));
    EXPECT_TRUE(sum == want.as(dtype)) << dtype_name(dtype);
  }
}

TEST_F(Instructions, GranuleNormsAreSumsOfSquares) {
  Tensor x(DS_DTYPE_F32, {512});
  for (int64_t e = 0; e < 512; ++e) x.set(e, e < 256 ? 2 : 3);
  Tensor norms = run({"granule_norms", {}, {x}, {Tensor(DS_DTYPE_F64, {2})}})[0];
  EXPECT_EQ(norms.at(0), 4.0 * 256);
  EXPECT_EQ(norms.at(1), 9.0 * 256);
}

TEST_F(Instructions, InitParamDrawsEachParameterIndependently) {
  auto draw = [&](int64_t param) {
    Attrs attrs{{"kind", "normal"}, {"scale", 0.5}, {"param", param}, {"begin", int64_t{0}}};
    return run({"init_param", attrs, {}, {Tensor(DS_DTYPE_F32, {256})}})[0];
  };
  for (int64_t param : {1, 32768, 65536, 131072}) EXPECT_FALSE(draw(param) == draw(0)) << param;
}

TEST_F(Instructions, InitParamOfASliceDrawsTheValuesOfTheWhole) {
  Attrs attrs{{"kind", "normal"}, {"scale", 0.5}, {"param", int64_t{2}}, {"begin", int64_t{0}}};
  Tensor whole = run({"init_param", attrs, {}, {Tensor(DS_DTYPE_F32, {512})}})[0];
  attrs.set("begin", int64_t{5});
  attrs.set("stride", int64_t{32});
  // Each row of the slice has 7 of every 32 elements.
  attrs.set("runs", std::vector<int64_t>{16, 3, 0, 4});
  Tensor slice = run({"init_param", attrs, {}, {Tensor(DS_DTYPE_F32, {100})}})[0];
  for (int64_t e = 0; e < 100; ++e) {
    int64_t row = (e + 5) / 7, column = (e + 5) % 7;
    EXPECT_EQ(slice.at(e), whole.at(row * 32 + (column < 3 ? 16 + column : column - 3))) << e;
  }
}

TEST_F(Instructions, InitParamDoesNotDependOnTheShard) {
  auto draw = [&](int64_t begin, int64_t count) {
    Attrs attrs{{"kind", "normal"}, {"scale", 0.5}, {"param", int64_t{2}}, {"begin", begin}};
    return run({"init_param", attrs, {}, {Tensor(DS_DTYPE_F32, {count})}})[0];
  };
  Tensor whole = draw(0, 4096), part = draw(1001, 7);
  for (int64_t e = 0; e < 7; ++e) EXPECT_EQ(part.at(e), whole.at(1001 + e));
  double sum = 0, squares = 0;
  for (int64_t e = 0; e < 4096; ++e) {
    sum += whole.at(e);
    squares += whole.at(e) * whole.at(e);
  }
  EXPECT_NEAR(sum / 4096, 0, 0.03);
  EXPECT_NEAR(std::sqrt(squares / 4096), 0.5, 0.02);
}

TEST_F(Instructions, ZeroClearsEveryByte) {
  Tensor x(DS_DTYPE_BF16, {257});
  x.poison();
  EXPECT_TRUE(run({"zero", {}, {}, {x}})[0] == Tensor(DS_DTYPE_BF16, {257}));
}

}  // namespace
}  // namespace ds::test
