// Tests keys of optimizers and schedules.
#include <gtest/gtest.h>

#include <cmath>

#include "core/config/config.h"
#include "core/config/describe.h"
#include "optim/param_groups.h"
#include "optim/schedule.h"
#include "support/parsed_config.h"

namespace ds {
namespace {

using test::parse, test::refusal_with, test::with;

// Compares with values of the formulas of transformers.optimization (5.23) at chosen steps.
TEST(Config, SchedulesHaveTheRatesOfTransformers) {
  auto rates = [](const std::string& type, const std::string& params, std::vector<int64_t> steps) {
    const Config c = parse(
        "{\"train_batch_size\": 1, \"optimizer\": {\"params\": {\"lr\": 0.5}}, "
        "\"scheduler\": {\"type\": \"" +
        type + "\", \"params\": {" + params + "}}}");
    std::vector<double> out;
    for (int64_t step : steps) {
      GroupScalars scalars = group_scalars(c.optimizer);
      apply_schedule(c.scheduler, 0, step, scalars);
      out.push_back(scalars.lr);
    }
    return out;
  };
  auto expect = [](const std::vector<double>& got, const std::vector<double>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
  };
  expect(rates("constant", "", {0, 5, 1000}), {0.5, 0.5, 0.5});
  expect(rates("constant", "\"warmup_num_steps\": 4", {0, 1, 4, 9}), {0, 0.125, 0.5, 0.5});
  const std::string steps = "\"warmup_num_steps\": 4, \"total_num_steps\": 20";
  expect(rates("linear", steps, {0, 2, 4, 12, 20, 30}), {0, 0.25, 0.5, 0.25, 0, 0});
  expect(rates("linear", steps + ", \"min_lr_ratio\": 0.5", {4, 12, 20}), {0.5, 0.375, 0.25});
  expect(rates("cosine", steps, {0, 2, 4, 8, 12, 20, 25}),
         {0, 0.25, 0.5, 0.25 * (1 + std::sqrt(0.5)), 0.25, 0, 0});
  const std::string decay = steps + ", \"decay_num_steps\": 8";
  expect(rates("WSD", decay, {0, 2, 4, 11, 12, 16, 20, 24}), {0, 0.25, 0.5, 0.5, 0.5, 0.25, 0, 0});
  expect(rates("wsd", decay + ", \"decay_type\": \"1-sqrt\"", {12, 14, 20}), {0.5, 0.25, 0});
  expect(rates("WSD", decay + ", \"decay_type\": \"cosine\", \"min_lr_ratio\": 0.2",
               {0, 2, 12, 16, 20}),
         {0.1, 0.3, 0.5, 0.3, 0.1});
}

TEST(Config, ImpossibleSchedulesAreRefused) {
  EXPECT_EQ(refusal_with("\"scheduler\": {\"type\": \"WarmupCosineLR\"}"),
            "scheduler.params.total_num_steps: missing; WarmupCosineLR needs it");
  EXPECT_EQ(
      refusal_with("\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.1}}"),
      "scheduler.params.cycle_max_lr: missing; OneCycle needs it");
  EXPECT_EQ(
      refusal_with("\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"total_num_steps\": 9}}"),
      "scheduler.params.total_num_steps: not a parameter of scheduler.type \"WarmupLR\"");
  EXPECT_EQ(refusal_with(
                "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": [1, 2]}}"),
            "scheduler.params.warmup_max_lr: expected a number or 1 of them, one for each group, "
            "got 2 values");
  EXPECT_EQ(
      refusal_with("\"optimizer\": {\"param_groups\": [{\"params\": \"a\"}]}, "
                   "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": [1]}}"),
      "scheduler.params.warmup_max_lr: expected a number or 2 of them, one for each group, got 1 "
      "values");
}

TEST(Config, OptimizersAcceptOnlyTheirOwnParameters) {
  const Config c = with(
      "\"optimizer\": {\"type\": \"sgd\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9, "
      "\"nesterov\": true, \"weight_decay\": 0.01, \"dampening\": 0}}");
  EXPECT_EQ(c.optimizer.type, "SGD");
  EXPECT_EQ(c.optimizer.momentum, 0.9);
  EXPECT_TRUE(c.optimizer.nesterov);
  EXPECT_EQ(c.optimizer.weight_decay, 0.01);
  EXPECT_EQ(
      refusal_with("\"optimizer\": {\"type\": \"SGD\", \"params\": {\"betas\": [0.9, 0.95]}}"),
      "optimizer.params.betas: not a parameter of optimizer.type \"SGD\"");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"params\": {\"momentum\": 0.9}}"),
            "optimizer.params.momentum: not a parameter of optimizer.type \"AdamW\"");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"type\": \"SGD\", \"params\": {\"nesterov\": true}}"),
            "optimizer.params.nesterov: true needs optimizer.params.momentum above 0, got 0");
  for (const auto& [section, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type": "SGD", "params": {"dampening": 0.1}})", ""},
           {R"({"type": "SGD", "params": {"momentum": 0.9, "nesterov": true, "dampening": 0.1}})",
            "optimizer.params.nesterov: true needs dampening 0, got 0.1"},
           {R"({"type": "Lion", "params": {"eps": 1e-8}})",
            "optimizer.params.eps: not a parameter of optimizer.type \"Lion\""},
           {R"({"type": "adagrad", "params": {"betas": [0.9, 0.99]}})",
            "optimizer.params.betas: not a parameter of optimizer.type \"Adagrad\""},
           {R"({"type": "lamb", "params": {"adam_w_mode": true}})",
            "optimizer.params.adam_w_mode: not a parameter of optimizer.type \"Lamb\""},
           {R"({"type": "Adam", "params": {"max_coeff": 1}})",
            "optimizer.params.max_coeff: not a parameter of optimizer.type \"Adam\""},
           {R"({"type": "Lamb", "params": {"min_coeff": 3, "max_coeff": 2}})",
            "optimizer.params.min_coeff 3 is above optimizer.params.max_coeff 2"},
           {R"({"type": "Lamb", "params": {"amsgrad": true}})",
            "optimizer.params.amsgrad: true is unsupported by this version; supported: false; no "
            "optimizer here keeps the largest second moment"},
           {R"({"type": "Adagrad", "params": {"lr_decay": -1}})",
            "optimizer.params.lr_decay: -1 is below 0"},
           {R"({"type": "Lion", "param_groups": [{"params": "a", "eps": 1}]})",
            "optimizer.param_groups[0].eps: not a parameter of optimizer.type \"Lion\""},
           {R"({"states": "f16"})",
            "optimizer.states: \"f16\" is unknown; supported: f32, bf16, u8"},
           {R"({"rounding": "stochastic"})",
            "optimizer.rounding: \"stochastic\" needs masters or states in fewer bits than f32, "
            "but optimizer.states is \"f32\""},
           {R"({"type": "Lion", "states": "u8"})",
            "optimizer.states: \"u8\" is for Adam and AdamW, but optimizer.type is \"Lion\""},
           {R"({"type": "Muon", "params": {"momentum": 1.5}})",
            "optimizer.params.momentum: must be below 1 with Muon, which averages, got 1.5"},
           {R"({"type": "Muon", "states": "bf16"})",
            "optimizer.type: \"Muon\" keeps masters and states in f32, but optimizer.states is "
            "bf16"},
           {R"({"type": "Muon", "params": {"ns_method": "cubic"}})",
            "optimizer.params.ns_method: \"cubic\" is unknown; supported: gram, standard"},
           {R"({"type": "Muon", "params": {"adam_lr": -1}})",
            "optimizer.params.adam_lr: -1 is below 0"},
           {R"({"type": "Adam", "params": {"muon_lr": 1}})",
            "optimizer.params.muon_lr: not a parameter of optimizer.type \"Adam\""},
           {R"({"type": "Muon", "params": {"per_head_muon": true}})",
            "optimizer.params.per_head_muon: true is unsupported by this version; supported: "
            "false; Muon's matrices are whole parameters here"},
           {R"({"type": "Lamb", "states": "bf16"})",
            "optimizer.type: \"Lamb\" keeps masters and states in f32, but optimizer.states is "
            "bf16"},
           {R"({"states": "bf16"}, "bf16": {"bf16_master_weights_and_grads": true})",
            "bf16.bf16_master_weights_and_grads: true needs bf16.enabled true, got false"},
           {R"({}, "bf16": {"enabled": true, "bf16_optimizer_states": true})",
            "bf16.bf16_optimizer_states: true needs bf16.bf16_master_weights_and_grads true, got "
            "false; optimizer.states \"bf16\" is beside f32 masters"},
           {R"({"type": "Lion", "params": {"fp32_optimizer_states": false}})",
            "optimizer.params.fp32_optimizer_states: not a parameter of optimizer.type \"Lion\""},
           {R"({"no_decay": "biases"})",
            "optimizer.no_decay: \"biases\" is unknown; supported: norms_and_biases"},
       }) {
    EXPECT_EQ(refusal_with("\"optimizer\": " + section), message) << section;
  }
}

TEST(Config, EachOptimizerHasItsOwnDefaults) {
  auto of = [](const std::string& section) { return with("\"optimizer\": " + section).optimizer; };
  EXPECT_EQ(of(R"({"type": "ADAGRAD"})").lr, 1e-2);
  EXPECT_EQ(of(R"({"type": "Adagrad"})").eps, 1e-10);
  EXPECT_EQ(of(R"({"type": "lion"})").type, "Lion");
  EXPECT_EQ(of(R"({"type": "LAMB"})").max_coeff, 10);
  const OptimizerConfig lamb =
      of(R"({"params": {"max_coeff": 0.5, "bias_correction": false}, "type": "Lamb"})");
  EXPECT_EQ(lamb.max_coeff, 0.5);
  EXPECT_FALSE(lamb.bias_correction);
  auto lean = [](const std::string& optimizer, const std::string& bf16) {
    return with("\"optimizer\": " + optimizer + R"(, "bf16": {"enabled": true)" + bf16 + "}")
        .optimizer;
  };
  EXPECT_EQ(of(R"({"states": "u8"})").states, DS_DTYPE_U8);
  EXPECT_EQ(with(R"("optimizer": {"states": "u8"})").warnings.size(), 1u)
      << "second moments stand still";
  EXPECT_TRUE(with(R"("optimizer": {"states": "u8", "rounding": "stochastic"})").warnings.empty());
  EXPECT_EQ(lean("{}", R"(, "bf16_master_weights_and_grads": true)").masters, DS_DTYPE_BF16);
  EXPECT_EQ(lean("{}", R"(, "bf16_master_weights_and_grads": true)").states, DS_DTYPE_F32);
  EXPECT_EQ(lean("{}", R"(, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true)")
                .states,
            DS_DTYPE_BF16);
  const std::string fp32 = R"({"params": {"fp32_optimizer_states": false}})";
  EXPECT_EQ(lean(fp32, R"(, "bf16_master_weights_and_grads": true)").states, DS_DTYPE_BF16);
  EXPECT_EQ(lean(fp32, "").states, DS_DTYPE_F32) << "of the type of the masters";
  EXPECT_TRUE(lean(R"({"states": "bf16", "rounding": "stochastic"})", "").stochastic);
  Json shown = with(R"("optimizer": {"type": "Lion", "no_decay": "norms_and_biases",
                                     "param_groups": [{"params": "a", "lr": 1}]})")
                   .effective()
                   .at("config")
                   .at("optimizer");
  EXPECT_EQ(shown.at("no_decay").string(), "norms_and_biases");
  EXPECT_EQ(shown.at("param_groups").array().size(), 1u);
  EXPECT_EQ(shown.at("params").find("eps"), nullptr);
}

// As in DeepSpeed, each half (matrices, and all other parameters) uses its own rate if given, or
// else lr, or else its own default. A group's lr applies to both halves.
TEST(Config, MuonHasTwoRates) {
  auto rates = [](const std::string& params, const std::string& group) {
    Config c = with(R"("optimizer": {"type": "muon", "params": )" + params +
                    (group.empty() ? "}" : R"(, "param_groups": [)" + group + "]}"));
    GroupScalars s = c.optimizer.groups.empty() ? group_scalars(c.optimizer)
                                                : group_scalars(c.optimizer, c.optimizer.groups[0]);
    return std::pair(s.lr, s.adam_lr);
  };
  EXPECT_EQ(rates("{}", ""), std::pair(0.02, 3e-4));
  EXPECT_EQ(rates(R"({"lr": 0.1})", ""), std::pair(0.1, 0.1));
  EXPECT_EQ(rates(R"({"lr": 0.1, "muon_lr": 0.2})", ""), std::pair(0.2, 0.1));
  EXPECT_EQ(rates(R"({"lr": 0.1, "adam_lr": 0.3})", ""), std::pair(0.1, 0.3));
  EXPECT_EQ(rates(R"({"adam_lr": 0.3})", R"({"params": "a", "lr": 0.5})"), std::pair(0.5, 0.5));
  EXPECT_EQ(rates(R"({"adam_lr": 0.3})", R"({"params": "a", "adam_lr": 0.5})"),
            std::pair(0.02, 0.5));
  EXPECT_EQ(rates(R"({"lr": 0.1})", R"({"params": "a", "lr": 0.5, "muon_lr": 0.6})"),
            std::pair(0.6, 0.5));
  EXPECT_EQ(rates(R"({"lr": 0.1})", R"({"params": "a", "lr": 0.5, "adam_lr": 0.6})"),
            std::pair(0.5, 0.6));
  const OptimizerConfig muon = with(R"("optimizer": {"type": "Muon"})").optimizer;
  EXPECT_EQ(muon.momentum, 0.95);
  EXPECT_EQ(muon.beta2, 0.95);
  EXPECT_EQ(muon.eps, 1e-10);
  EXPECT_EQ(muon.ns_method, "gram");
}

TEST(Config, OptimizersHaveDefaults) {
  const Config c = with(
      "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 3e-4, \"betas\": [0.8, 0.95]}}");
  EXPECT_EQ(c.optimizer.type, "Adam");
  EXPECT_TRUE(c.optimizer.adam_w_mode);
  EXPECT_EQ(c.optimizer.beta1, 0.8);
  EXPECT_EQ(c.optimizer.beta2, 0.95);
  EXPECT_EQ(c.optimizer.weight_decay, 0);
  EXPECT_EQ(c.gradient_clipping, 1.0);
  EXPECT_FALSE(with("\"optimizer\": {\"type\": \"adam\", \"params\": {\"adam_w_mode\": false}}")
                   .optimizer.adam_w_mode);
  EXPECT_TRUE(with("\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": false}}")
                  .optimizer.adam_w_mode);
  EXPECT_EQ(with("\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}}")
                .optimizer.weight_decay,
            0.01);
  EXPECT_EQ(refusal_with("\"optimizer\": {\"params\": {\"max_grad_norm\": 1}}"), "");
  EXPECT_EQ(with("\"optimizer\": {\"params\": {\"max_grad_norm\": 0.5}}").gradient_clipping, 0.5);
  EXPECT_EQ(
      refusal_with("\"gradient_clipping\": 2, \"optimizer\": {\"params\": {\"max_grad_norm\": 1}}"),
      "optimizer.params.max_grad_norm: 1 contradicts gradient_clipping 2, which is the same bound");
}

}  // namespace
}  // namespace ds
