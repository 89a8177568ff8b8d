#include "support/hf_golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "passes/precision.h"
#include "support/record.h"

namespace ds::test {
namespace {

class HfGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { register_ref(registry_); }

  double tolerance(const char* of, const char* kind) const {
    return golden_.numbers.at("tolerance").at(of).at(kind).number();
  }
  double loss(const char* key) const { return golden_.numbers.at("loss").at(key).number(); }
  // Returns whether a row is not padding. Padding rows are computed, but no result depends on them.
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
    EXPECT_EQ(graph.type(param.value).shape, Shape(std::vector<Dim>(dims.begin(), dims.end())))
        << param.name;
    names.insert(param.name);
  }
  for (const auto& [name, tensor] : golden_.weights) EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(model_.family, golden_.numbers.at("model_type").string());
  for (const auto& [absent, present] : model_.tied)
    EXPECT_FALSE(golden_.weights.contains(absent)) << absent;
  // Files written by make_golden.py do not record which weights are tied.
  const Json* tied = golden_.numbers.find("tied");
  if (tied == nullptr) return;
  ASSERT_EQ(model_.tied.size(), tied->object().size());
  for (const auto& [absent, present] : model_.tied) EXPECT_EQ(tied->at(absent).string(), present);
}

TEST_P(HfGoldenTest, LossAndLogitsInF32EqualTheRecord) {
  Interpreter run(model_.graph, registry_, team_, golden_.rows());
  golden_.fill(run, model_);
  run.run();
  EXPECT_NEAR(run.at(model_.graph.outputs[0].value).at(0), loss("value"), tolerance("loss", "abs"));
  const Tensor& logits = run.at(model_.graph.outputs[1].value);
  int64_t vocab = logits.dims().at(1);
  EXPECT_LE(largest_distance(logits, golden_.inputs.at("logits"),
                             [&](int64_t e) { return counts(e / vocab); }),
            tolerance("logits", "abs"));
}

// In f64, rounding is negligible, so equal results mean equal formulas and derivatives.
TEST_P(HfGoldenTest, LossAndGradientsInF64EqualTheRecord) {
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

// Checks the recorded losses and norms of one optimizer's steps, within the tolerances of `libds
// verify`, against those in f64.
void expect_run(const Record& run, const Record& tolerance) {
  const bool sgd = run.at("optimizer").string() == "torch.optim.SGD";
  EXPECT_TRUE(sgd || run.at("optimizer").string() == "torch.optim.AdamW");
  for (const char* name : {"lr", "weight_decay"}) EXPECT_GE(run.at(name).number(), 0);
  if (sgd) {
    for (const char* name : {"momentum", "dampening"}) EXPECT_GE(run.at(name).number(), 0);
  } else {
    EXPECT_EQ(run.at("betas").array().size(), 2u);
    EXPECT_GT(run.at("eps").number(), 0);
  }
  run.told({"clip_grad_norm", "micro_batches", "targets", "averaging", "batches", "scheme",
            "micro_loss"});
  const Json::Array &losses = run.at("loss").array(), &norms = run.at("grad_norm").array();
  EXPECT_EQ(losses.size(), norms.size());
  const double loss_abs = tolerance.at("loss_abs").number(),
               norm_rel = tolerance.at("grad_norm_rel").number();
  // The tolerances must exceed the differences measured between torch's own types and orders of
  // addition.
  for (const char* name : {"measured_loss_abs", "measured_loss_abs_spread"}) {
    if (const Json* measured = tolerance.find(name)) {
      EXPECT_LE(measured->number(), loss_abs) << name;
    }
  }
  for (const char* name : {"measured_grad_norm_rel", "measured_grad_norm_rel_spread"}) {
    if (const Json* measured = tolerance.find(name)) {
      EXPECT_LE(measured->number(), norm_rel) << name;
    }
  }
  tolerance.told({"measured_loss_abs_to_f32", "measured_grad_norm_rel_to_f32"});
  const Json *exact = run.find("loss_f64"), *exact_norms = run.find("grad_norm_f64");
  ASSERT_EQ(exact == nullptr, exact_norms == nullptr);
  for (size_t i = 0; exact && i < losses.size(); ++i) {
    EXPECT_NEAR(losses[i].number(), exact->array().at(i).number(), loss_abs) << i;
    const double norm = norms[i].number();
    EXPECT_NEAR(norm, exact_norms->array().at(i).number(), norm_rel * norm) << i;
  }
  const Json *last = run.find("final_loss"), *last_exact = run.find("final_loss_f64");
  if (last && last_exact) {
    EXPECT_NEAR(last->number(), last_exact->number(), loss_abs);
  }
}

double square_sum(const Tensor& t) {
  double sum = 0;
  for (int64_t e = 0; e < t.numel(); ++e) sum += t.at(e) * t.at(e);
  return sum;
}

// Each field of golden.json is used by this test or by `libds verify`, and agrees with the other
// files in the folder.
TEST_P(HfGoldenTest, TheRecordAgreesWithTheFilesOfItsFolder) {
  const Record all(golden_.numbers, GetParam() + "/golden.json");
  all.told({"case", "made_with", "seed", "notes", "model_type", "tied"});
  const Json config = read_json(golden_.folder + "/config.json");
  if (const Json* name = all.find("architecture")) {
    EXPECT_EQ(name->string(), config.at("architectures").array().at(0).string());
  }
  int64_t elements = 0;
  double squares = 0;
  for (const auto& [name, tensor] : golden_.weights) {
    elements += tensor.numel();
    squares += square_sum(golden_.inputs.at("grad." + name));
  }
  if (const Json* count = all.find("param_count")) {
    EXPECT_EQ(count->integer(), elements);
  }
  if (const Json* count = all.find("param_tensors")) {
    EXPECT_EQ(count->integer(), static_cast<int64_t>(golden_.weights.size()));
  }
  for (const char* name : {"grad_norm", "grad_norm_f64"}) {
    if (const Json* norm = all.find(name)) {
      EXPECT_NEAR(norm->number(), std::sqrt(squares), 1e-5 * norm->number());
    }
  }
  if (all.has("router_margin")) {
    const Record margin = all.inside("router_margin");
    margin.told({"note"});
    EXPECT_GT(margin.at("smallest_logit_gap").number(), 0);
  }

  const Record tolerance = all.inside("tolerance"), loss_record = all.inside("loss");
  loss_record.told({"definition"});
  EXPECT_EQ(loss_record.at("ignore_index").integer(), -100);
  const double value = loss_record.at("value").number(), most = this->tolerance("loss", "abs");
  for (const char* name : {"value_f64", "value_f32"}) {
    if (const Json* other = loss_record.find(name)) {
      EXPECT_NEAR(other->number(), value, most) << name;
    }
  }
  if (const Json* targets = loss_record.find("targets")) {
    const Tensor given = golden_.input(model_, "targets");
    int64_t count = 0;
    for (int64_t r = 0; r < given.numel(); ++r) count += given.at(r) >= 0 ? 1 : 0;
    EXPECT_EQ(targets->integer(), count);
  }
  if (const Json* weight = loss_record.find("aux_coef")) {
    EXPECT_EQ(weight->number(), config.at("router_aux_loss_coef").number());
    const double parts = loss_record.at("cross_entropy").number() +
                         weight->number() * loss_record.at("aux").number();
    EXPECT_NEAR(parts, value, most);
  }

  for (const char* run : {"adamw", "accum", "sgd", "bf16", "bf16_accum"}) {
    ASSERT_EQ(all.has(run), tolerance.has(run)) << run;
    if (all.has(run)) expect_run(all.inside(run), tolerance.inside(run));
  }
  const Record logits = tolerance.inside("logits"), of_loss = tolerance.inside("loss"),
               grad = tolerance.inside("grad");
  for (const Record* of : {&logits, &of_loss, &grad}) {
    EXPECT_LE(of->at("measured_abs").number(), of->at("abs").number());
    of->told({"largest"});
  }
  EXPECT_LE(grad.at("measured_rel").number(), grad.at("rel").number());
  if (const Json* worst = grad.find("worst_rel")) {
    EXPECT_TRUE(golden_.weights.contains(worst->string()));
  }
  for (const Json& zero : grad.at("zero").array())
    EXPECT_LE(square_sum(golden_.inputs.at("grad." + zero.string())), 1e-10) << zero.string();

  EXPECT_EQ(all.at("final_params").object().size(), golden_.weights.size());
  for (const auto& [name, json] : all.at("final_params").object()) {
    const Record sums(json, name);
    ASSERT_TRUE(golden_.weights.contains(name)) << name;
    for (const char* sum : {"sum", "l2"}) {
      const double found = sums.at(sum).number(),
                   allowed = sums.at(std::string(sum) + "_tol").number();
      EXPECT_GE(allowed, 0);
      if (const Json* exact = sums.find(std::string(sum) + "_f64")) {
        EXPECT_NEAR(found, exact->number(), allowed) << name;
      }
    }
    for (const char* count : {"unsure", "zero"}) {
      EXPECT_GE(sums.at(count).integer(), 0);
      EXPECT_LE(sums.at(count).integer(), golden_.weights.at(name).numel());
    }
  }
  if (!all.has("greedy")) return;
  for (const Record& text : all.list("greedy")) {
    EXPECT_FALSE(text.at("prompt").array().empty());
    EXPECT_EQ(text.at("tokens").array().size(), text.at("margin").array().size());
    for (const Json& margin : text.at("margin").array()) EXPECT_GT(margin.number(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HfGoldenTest, testing::ValuesIn(golden_models()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ds::test
