#include "support/hf_golden.h"

#include <gtest/gtest.h>

#include <set>

#include "passes/precision.h"

namespace ds::test {
namespace {

class HfGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { register_ref(registry_); }

  double tolerance(const char* of, const char* kind) const {
    return golden_.numbers.at("tolerance").at(of).at(kind).number();
  }
  double loss(const char* key) const { return golden_.numbers.at("loss").at(key).number(); }
  // Rows of padding are computed, but nothing depends on them.
  bool counts(int64_t row) const {
    auto mask = golden_.inputs.find("attention_mask");
    return mask == golden_.inputs.end() || mask->second.at(row) != 0;
  }

  HfGolden golden_{golden_path(GetParam())};
  HfModel model_ = golden_.build();
  KernelRegistry registry_;
  ThreadTeam team_{1};
};

TEST_P(HfGoldenTest, ParametersAreTheTensorsOfTheFile) {
  const Graph& graph = model_.graph;
  graph.check();
  std::set<std::string> names;
  for (const Parameter& param : graph.params) {
    ASSERT_TRUE(golden_.weights.contains(param.name)) << param.name;
    const std::vector<int64_t>& dims = golden_.weights.at(param.name).dims();
    EXPECT_EQ(graph.type(param.value).shape, Shape(std::vector<Dim>(dims.begin(), dims.end()))) << param.name;
    names.insert(param.name);
  }
  for (const auto& [name, tensor] : golden_.weights) EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(model_.family, golden_.numbers.at("model_type").string());
  for (const auto& [absent, present] : model_.tied) EXPECT_FALSE(golden_.weights.contains(absent)) << absent;
  const Json* tied = golden_.numbers.find("tied");  // make_golden.py records none
  if (tied == nullptr) return;
  ASSERT_EQ(model_.tied.size(), tied->object().size());
  for (const auto& [absent, present] : model_.tied) EXPECT_EQ(tied->at(absent).string(), present);
}

TEST_P(HfGoldenTest, LossAndLogitsInF32) {
  Interpreter run(model_.graph, registry_, team_, golden_.rows());
  golden_.fill(run, model_);
  run.run();
  EXPECT_NEAR(run.at(model_.graph.outputs[0].value).at(0), loss("value"), tolerance("loss", "abs"));
  const Tensor& logits = run.at(model_.graph.outputs[1].value);
  int64_t vocab = logits.dims().at(1);
  EXPECT_LE(
      largest_distance(logits, golden_.inputs.at("logits"), [&](int64_t e) { return counts(e / vocab); }),
      tolerance("logits", "abs"));
}

// In f64 nothing is left of rounding: the formulas are the same, and so are their derivatives.
TEST_P(HfGoldenTest, LossAndGradientsInF64) {
  set_precision(model_.graph, DS_DTYPE_F64);
  differentiate(model_.graph, model_.graph.outputs[0].value);
  model_.graph.check();
  Interpreter run(model_.graph, registry_, team_, golden_.rows());
  golden_.fill(run, model_);
  run.run();
  EXPECT_NEAR(run.at(model_.graph.outputs[0].value).at(0), loss("value_f64"), 1e-9);
  for (const Parameter& param : model_.graph.params) {
    ASSERT_TRUE(param.grad.exists()) << param.name;
    EXPECT_LE(largest_distance(run.at(param.grad), golden_.inputs.at("grad." + param.name)),
              tolerance("grad", "abs"))
        << param.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HfGoldenTest, testing::ValuesIn(golden_models()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ds::test
