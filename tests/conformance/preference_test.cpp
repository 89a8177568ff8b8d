// Compares preference_loss with numbers that TRL 1.16 gave for one pair of texts: odds and simpo by
// ORPOTrainer.odds_ratio_loss and CPOTrainer.cpo_loss, the others by the formulas of DPOTrainer, in
// torch with f64.
#include <gtest/gtest.h>

#include <vector>

#include "core/base/error.h"
#include "core/graph/ops.h"
#include "support/conformance.h"
#include "support/errors.h"

namespace ds::test {
namespace {

struct Recorded {
  Attrs attrs;
  double loss;
  // The gradient of each target's loss, which is the same for all targets of a text.
  double chosen, rejected;
  std::vector<double> rewards;
};

const std::vector<double> kOfScores{0.075, 0.1875, 0, -0.1125},
    kOfMeans{-0.375, -0.13125, 0, -0.24375};

std::vector<Recorded> recorded() {
  auto attrs = [](const char* loss) {
    return Attrs{{"rows", int64_t{4}}, {"loss", std::string(loss)}, {"beta", 0.3}};
  };
  std::vector<Recorded> out{
      {attrs("sigmoid"), 0.728478378239, 0.0984286123225, -0.0984286123225, kOfScores},
      {attrs("hinge"), 1.1125, 0.3, -0.3, kOfScores},
      {attrs("ipo"), 3.59418402778, 1.26388888889, -1.89583333333, kOfScores},
      {attrs("odds"), 0.513465455524, 0.114845145813, -0.346865189307, kOfMeans},
      {attrs("simpo"), 1.05825539818, 0.0577815333114, -0.0866722999671, kOfMeans}};
  out[0].attrs.set("label_smoothing", 0.2);
  out[4].attrs.set("label_smoothing", 0.1);
  out[4].attrs.set("margin", 0.5);
  return out;
}

Tensor tensor_of(DType dtype, const std::vector<double>& values) {
  Tensor out(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) out.set(static_cast<int64_t>(i), values[i]);
  return out;
}

TEST(Preference, LossesRewardsAndGradientsAreThoseOfTrl) {
  // The second pair is padding, which does not count.
  const std::vector<double> targets{-100, 3,    4,    5,    -100, 1,    -100, 2,
                                    -100, -100, -100, -100, -100, -100, -100, -100};
  auto padded = [](std::vector<double> values) {
    values.resize(16, 7);
    return tensor_of(DS_DTYPE_F64, values);
  };
  KernelRegistry registry;
  register_ref(registry);
  ThreadTeam team(1);
  for (const Recorded& want : recorded()) {
    const std::string name(want.attrs.text("loss"));
    std::vector<Tensor> in{padded({0.5, 1.5, 2.0, 0.25, 3.0, 0.75, 1.0, 0.125}),
                           tensor_of(DS_DTYPE_I32, targets)};
    if (name != "odds" && name != "simpo") in.push_back(padded({0, 1, 2.5, 0.5, 0, 1.25, 9, 0.25}));
    auto run = [&](const char* op) {
      return run_case(implementation(registry, op, "ref"), {op, want.attrs, in}, DS_DTYPE_F64,
                      team);
    };
    const std::vector<Tensor> got = run("preference_loss");
    EXPECT_NEAR(got[0].at(0), want.loss, 1e-10) << name;
    for (int64_t i = 0; i < 4; ++i)
      EXPECT_NEAR(got[1].at(i), want.rewards[static_cast<size_t>(i)], 1e-10) << name << " " << i;
    Tensor one(DS_DTYPE_F64, {});
    one.set(0, 1);
    in.insert(in.begin(), one);
    const std::vector<Tensor> grads = run("preference_loss_dx");
    for (int64_t r = 0; r < 16; ++r) {
      const double slope = r < 4 ? want.chosen : want.rejected;
      const double expected = targets[static_cast<size_t>(r)] < 0 ? 0 : slope;
      EXPECT_NEAR(grads[0].at(r), expected, 1e-10) << name << " row " << r;
      if (grads.size() == 1) continue;
      EXPECT_NEAR(grads[1].at(r), -expected, 1e-10) << name << " row " << r;
    }
  }
}

TEST(Preference, RefusesAReferenceThatIsMissingOrNotUsed) {
  const TensorType losses{DS_DTYPE_F32, {Dim::n()}}, targets{DS_DTYPE_I32, {Dim::n()}};
  auto refusal = [&](const char* loss, std::vector<TensorType> in) {
    const Attrs attrs{{"rows", int64_t{4}}, {"loss", std::string(loss)}};
    return message_of([&] { op("preference_loss").infer(in, attrs); }, DS_ERROR_INVALID_ARGUMENT);
  };
  EXPECT_EQ(refusal("sigmoid", {losses, targets}),
            "preference_loss: loss \"sigmoid\" takes a reference, got 2 operands");
  EXPECT_EQ(refusal("simpo", {losses, targets, losses}),
            "preference_loss: loss \"simpo\" takes no reference, got 3 operands");
}

}  // namespace
}  // namespace ds::test
