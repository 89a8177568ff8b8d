// Compares every registered kernel of every op with the f64 reference.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/base/random.h"
#include "core/graph/ops.h"
#include "support/conformance.h"

namespace ds::test {
namespace {

KernelRegistry reference() {
  KernelRegistry registry;
  register_ref(registry);
  return registry;
}

TEST(Reference, EveryOpIsRegisteredAndHasACase) {
  KernelRegistry registry = reference();
  std::set<std::string> with_case;
  for (const OpCase& c : op_cases()) with_case.insert(c.op);
  for (const OpDef& row : op_table()) {
    EXPECT_NO_THROW(implementation(registry, row.name, "ref"));
    EXPECT_TRUE(with_case.count(row.name)) << row.name;
  }
  for (const char* op : {"zero",
                         "accumulate",
                         "init_param",
                         "granule_norms",
                         "quantize",
                         "dequantize",
                         "dequantize_sum",
                         "pack_rows",
                         "sum_rows",
                         "sum_norms",
                         "add_error",
                         "mean_signs",
                         "pack_signs",
                         "unpack_signs",
                         "adamw",
                         "sgd",
                         "lion",
                         "adagrad",
                         "lamb_moments",
                         "lamb_ratios",
                         "lamb",
                         "momentum",
                         "frozen_adam",
                         "losses",
                         "clip",
                         "own_gradient",
                         "local_adam",
                         "synced_adam",
                         "scale_momentum",
                         "lamb_scales",
                         "frozen_lamb_moments",
                         "frozen_lamb_ratios",
                         "adamw_codes",
                         "muon_momentum",
                         "unit_matrix",
                         "blend",
                         "muon",
                         "pack_top",
                         "sum_top",
                         "mean_gradients"}) {
    EXPECT_NO_THROW(implementation(registry, op, "ref"));
  }
}

// The defaults in the table of ops are those that kernels and shape rules use.
TEST(Reference, AnAbsentAttributeMeansItsDefault) {
  KernelRegistry registry = reference();
  ThreadTeam team(1);
  std::set<std::string> seen, all;
  for (const OpDef& row : op_table()) {
    for (const AttrDef& attr : row.attrs) {
      if (attr.otherwise) all.insert(row.name + "." + attr.name);
    }
  }
  for (const OpCase& c : op_cases()) {
    const KernelImpl& impl = implementation(registry, c.op, "ref");
    const OpDef& row = op(c.op);
    std::vector<Tensor> without = run_case(impl, c, DS_DTYPE_F32, team);
    EXPECT_LE(without.size(), row.results(c.in.size())) << c.label();
    for (const AttrDef& attr : row.attrs) {
      if (!attr.otherwise || c.attrs.has(attr.name)) continue;
      OpCase with = c;
      with.attrs.set(attr.name, *attr.otherwise);
      EXPECT_TRUE(run_case(impl, with, DS_DTYPE_F32, team) == without) << with.label();
      seen.insert(row.name + "." + attr.name);
    }
  }
  EXPECT_EQ(seen, all);
}

TEST(Accuracy, HasExactlyOneRowPerKernel) {
  std::set<std::string> rows, kernels;
  for (const Accuracy& row : accuracy_table()) rows.emplace(row.op);
  KernelRegistry registry = reference();
  for (const KernelImpl& impl : registry.all()) kernels.insert(impl.op);
  EXPECT_EQ(rows, kernels);
  EXPECT_EQ(rows.size(), accuracy_table().size());
}

// Audits rely on the column one_result of the table.
TEST(Accuracy, OperationsWithOneResultHaveThatResultInEveryFamily) {
  KernelRegistry all = built_in_kernels(), ref = reference();
  ThreadTeam team(2);
  int64_t compared = 0;
  for (const OpCase& c : large_op_cases()) {
    if (!find_accuracy(c.op)->one_result) continue;
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      std::vector<Tensor> want = run_case(implementation(ref, c.op, "ref"), c, dtype, team);
      for (const KernelImpl& impl : all.all()) {
        if (impl.name == "ref" || !refusal(impl, c, dtype).empty()) continue;
        EXPECT_TRUE(run_case(impl, c, dtype, team) == want) << impl.name << " " << c.label();
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 20);
}

TEST(Reference, RoundsOnceInEveryType) {
  KernelRegistry registry = reference();
  ThreadTeam team(1);
  for (const OpCase& c : op_cases()) {
    for (DType dtype : {DS_DTYPE_F32, DS_DTYPE_BF16, DS_DTYPE_F16}) {
      const KernelImpl& impl = implementation(registry, c.op, "ref");
      ASSERT_EQ(refusal(impl, c, dtype), "") << c.label();
      Deviation d = deviation(impl, c, dtype, team);
      EXPECT_LT(d.error, kMostUnits) << c.label() << " " << dtype_name(dtype) << " " << d.where;
    }
  }
}

TEST(Reference, DeviationDetectsAWrongKernel) {
  ThreadTeam team(1);
  KernelImpl wrong{"linear", "wrong", [](const KernelContext& c) {
                     for (int64_t e = 0; e < c.out[0].numel(); ++e) c.out[0].as<float>()[e] = 0.25f;
                   }};
  OpCase c{"linear",
           {},
           {random_tensor(DS_DTYPE_F64, {3, 4}, 1), random_tensor(DS_DTYPE_F64, {2, 4}, 2)}};
  EXPECT_GT(deviation(wrong, c, DS_DTYPE_F32, team).error, 1e4);
}

TEST(Dropout, KeepsTheRequestedFractionAndScalesIt) {
  KernelRegistry registry = reference();
  ThreadTeam team(1);
  const KernelImpl& impl = implementation(registry, "dropout", "ref");
  constexpr int64_t kCount = 20000;
  Tensor x(DS_DTYPE_F32, {kCount}), y(DS_DTYPE_F32, {kCount}), z(DS_DTYPE_F32, {kCount});
  for (int64_t e = 0; e < kCount; ++e) x.set(e, 1);
  Attrs attrs{{"p", 0.25}, {"op", int64_t{3}}}, other{{"p", 0.25}, {"op", int64_t{4}}};
  StepScalars scalars;
  scalars.seed = 1;
  std::vector<TensorView> in{x.view()}, out{y.view()}, out_other{z.view()};
  launch(impl, attrs, in, out, team, scalars, 2);
  launch(impl, other, in, out_other, team, scalars, 2);
  int64_t kept = 0, same = 0;
  for (int64_t e = 0; e < kCount; ++e) {
    EXPECT_TRUE(y.at(e) == 0 || y.at(e) == static_cast<double>(static_cast<float>(1 / 0.75)));
    kept += y.at(e) != 0;
    same += y.at(e) == z.at(e);
  }
  // The standard deviation of both counts is below 71.
  EXPECT_NEAR(static_cast<double>(kept), 0.75 * kCount, 300);
  EXPECT_NEAR(static_cast<double>(same), (0.75 * 0.75 + 0.25 * 0.25) * kCount, 300);
  scalars.train = 0;
  launch(impl, attrs, in, out, team, scalars, 2);
  EXPECT_TRUE(y == x);
}

// With equal scores and one-hot v, y_ij is the weight of key j: 1 / keys, times 0 or 1 / (1 - p).
TEST(AttentionDropout, KeepsTheRequestedFractionAndScalesIt) {
  constexpr int64_t kKeys = 60, kHeads = 2, kUnit = 64;
  KernelRegistry registry;
  register_cpu(registry);
  register_ref(registry);
  ThreadTeam team(1);
  Tensor zeros(DS_DTYPE_F32, {kKeys, kHeads * kKeys}), v(DS_DTYPE_F32, {kKeys, kHeads * kKeys});
  for (int64_t j = 0; j < kKeys * kHeads * kKeys; ++j) {
    zeros.set(j, 0);
    v.set(j, j / (kHeads * kKeys) == j % kKeys);
  }
  std::vector<TensorView> in{zeros.view(), zeros.view(), v.view()};
  auto weights = [&](const char* family, uint64_t seed, int64_t step, int32_t leaf, int64_t op) {
    Attrs attrs{
        {"heads", kHeads}, {"seq", kKeys}, {"causal", int64_t{0}}, {"dropout", 0.25}, {"op", op}};
    Tensor y(DS_DTYPE_F32, {kKeys, kHeads * kKeys}), lse(DS_DTYPE_F32, {kHeads, kKeys});
    std::vector<TensorView> out{y.view(), lse.view()};
    StepScalars scalars;
    scalars.seed = seed;
    scalars.step = step;
    launch(implementation(registry, "attention", family), attrs, in, out, team, scalars, leaf);
    return y;
  };
  for (const char* family : {"cpu", "ref"}) {
    Tensor y = weights(family, 1, 5, 2, 3);
    int64_t kept = 0, numel = kKeys * kHeads * kKeys;
    RandomStream stream{1, 5, 2, 3};
    for (int64_t e = 0; e < numel; ++e) {
      int64_t row = e / (kHeads * kKeys), head = e / kKeys % kHeads, key = e % kKeys;
      auto word = static_cast<uint64_t>((row * kHeads + head) * kUnit + key);
      bool keeps = uniform01(stream.block(word / 4)[word % 4]) >= 0.25f;
      ASSERT_NEAR(y.at(e), keeps ? 1 / (0.75 * kKeys) : 0, 1e-6) << family << " element " << e;
      kept += y.at(e) != 0;
    }
    EXPECT_NEAR(static_cast<double>(kept), 0.75 * static_cast<double>(numel),
                4 * std::sqrt(numel * 0.1875));
    EXPECT_TRUE(y == weights(family, 1, 5, 2, 3));
    EXPECT_FALSE(y == weights(family, 2, 5, 2, 3)) << "seed";
    EXPECT_FALSE(y == weights(family, 1, 6, 2, 3)) << "step";
    EXPECT_FALSE(y == weights(family, 1, 5, 3, 3)) << "leaf";
    EXPECT_FALSE(y == weights(family, 1, 5, 2, 4)) << "op";
  }
}

TEST(CrossEntropy, IsZeroWithoutTargets) {
  KernelRegistry registry = reference();
  ThreadTeam team(1);
  Tensor targets(DS_DTYPE_I32, {3});
  for (int64_t r = 0; r < 3; ++r) targets.set(r, -100);
  OpCase c{"cross_entropy", {}, {random_tensor(DS_DTYPE_F64, {3, 4}, 1), targets}};
  std::vector<Tensor> out = run_case(implementation(registry, c.op, "ref"), c, DS_DTYPE_F32, team);
  EXPECT_EQ(out[0].at(0), 0);
}

// Logits are near 46, and the loss is near 0.0045: 1 - p at the target must not be rounded relative
// to a logit or to 1. All differences of logits are exact in f32.
TEST(CrossEntropy, NearlyCertainTargetsKeepTheirDigits) {
  constexpr int64_t kRows = 6, kWords = 83;
  KernelRegistry registry;
  register_cpu(registry);
  register_ref(registry);
  ThreadTeam team(1);
  Tensor logits = random_tensor(DS_DTYPE_F64, {kRows, kWords}, 1),
         targets = random_ids(kRows, kWords, 2);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t v = 0; v < kWords; ++v) {
      double apart =
          // The last row is not nearly certain.
          std::abs(logits.at(r * kWords + v)) + (r < 5 ? 9.5 : 0);
      bool hit = v == static_cast<int64_t>(targets.at(r));
      logits.set(r * kWords + v, 46.125 - (hit ? 0 : std::round(apart * 0x1p16) * 0x1p-16));
    }
  }
  const OpCase forward{"cross_entropy", {}, {logits, targets}};
  std::vector<Tensor> exact =
      run_case(implementation(registry, forward.op, "ref"), forward, DS_DTYPE_F64, team);
  Tensor one = random_tensor(DS_DTYPE_F64, {}, 3);
  for (const KernelImpl& impl : registry.all()) {
    if (impl.op != "cross_entropy") continue;
    std::vector<Tensor> loss = run_case(impl, forward, DS_DTYPE_F32, team);
    EXPECT_NEAR(loss[0].at(0) / exact[0].at(0), 1, 8 * 0x1p-24) << impl.name;
    const OpCase backward{"cross_entropy_dx", {}, {one, logits, targets, loss[1]}};
    const OpCase of_exact{"cross_entropy_dx", {}, {one, logits, targets, exact[1]}};
    Tensor got =
        run_case(implementation(registry, backward.op, impl.name), backward, DS_DTYPE_F32, team)[0];
    Tensor want =
        run_case(implementation(registry, backward.op, "ref"), of_exact, DS_DTYPE_F64, team)[0];
    for (int64_t e = 0; e < got.numel(); ++e) {
      ASSERT_NEAR(got.at(e) / want.at(e), 1, 12 * 0x1p-24) << impl.name << " element " << e;
    }
  }
}

TEST(TopGates, KeepsTheLowerIndexOfEqualLogits) {
  KernelRegistry registry = reference();
  ThreadTeam team(1);
  Tensor z(DS_DTYPE_F32, {2, 4}), y(DS_DTYPE_F32, {2, 4});
  const double logits[] = {0, 0, 0, 0, 1, 2, 2, 1};
  for (int64_t e = 0; e < 8; ++e) z.set(e, logits[e]);
  std::vector<TensorView> in{z.view()}, out{y.view()};
  launch(implementation(registry, "top_gates", "ref"), {{"k", int64_t{2}}}, in, out, team);
  const double normalized[] = {0.5, 0.5, 0, 0, 0, 0.5, 0.5, 0};
  for (int64_t e = 0; e < 8; ++e) EXPECT_EQ(y.at(e), normalized[e]) << e;
  Attrs shares{{"k", int64_t{3}}, {"normalize", int64_t{0}}};
  launch(implementation(registry, "top_gates", "ref"), shares, in, out, team);
  double low = 1 / (2 + 2 * std::exp(1.0)), high = std::exp(1.0) * low;
  const double kept[] = {0.25, 0.25, 0.25, 0, low, high, high, 0};
  for (int64_t e = 0; e < 8; ++e) EXPECT_NEAR(y.at(e), kept[e], 1e-7) << e;
}

// Two layers with two rows each: f = (3/4, 1/4) for k = 1, and p is the mean softmax.
TEST(LoadBalance, EqualsHuggingFacesLossOverAllLayers) {
  KernelRegistry registry = reference();
  ThreadTeam team(1);
  Tensor a(DS_DTYPE_F64, {2, 2}), b(DS_DTYPE_F64, {2, 2}), loss(DS_DTYPE_F64, {});
  const double logits_a[] = {0, 0, 1, 0}, logits_b[] = {0, 2, 3, 0};
  for (int64_t e = 0; e < 4; ++e) a.set(e, logits_a[e]);
  for (int64_t e = 0; e < 4; ++e) b.set(e, logits_b[e]);
  std::vector<TensorView> in{a.view(), b.view()}, out{loss.view()};
  launch(implementation(registry, "load_balance", "ref"), {{"k", int64_t{1}}}, in, out, team);
  auto logistic = [](double x) { return 1 / (1 + std::exp(-x)); };
  double p = (logistic(0) + logistic(1) + logistic(-2) + logistic(3)) / 4;
  EXPECT_NEAR(loss.at(0), 2 * (0.75 * p + 0.25 * (1 - p)), 1e-15);
}

TEST(Cast, RoundsToNearestEven) {
  KernelRegistry registry = reference();
  ThreadTeam team(1);
  Tensor x(DS_DTYPE_F32, {4}), y(DS_DTYPE_BF16, {4});
  const double given[] = {1 + 0x1p-8, 1 + 0x1.8p-7, 1 + 0x1.01p-8, -(1 + 0x1p-8)};
  const double rounded[] = {1, 1 + 0x1p-6, 1 + 0x1p-7, -1};
  for (int64_t e = 0; e < 4; ++e) x.set(e, given[e]);
  std::vector<TensorView> in{x.view()}, out{y.view()};
  launch(implementation(registry, "cast", "ref"), {{"dtype", "bf16"}}, in, out, team);
  for (int64_t e = 0; e < 4; ++e) EXPECT_EQ(y.at(e), rounded[e]) << e;
}

}  // namespace
}  // namespace ds::test
