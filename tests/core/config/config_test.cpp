#include "core/config/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "core/base/error.h"
#include "core/config/describe.h"
#include "core/config/param_groups.h"
#include "core/config/schedule.h"
#include "core/config/schema.h"
#include "support/config_page.h"

namespace ds {
namespace {

Config parse(const std::string& text, int world = 1) {
  return parse_config(Json::parse(text), world);
}

// A document with the mandatory batch size and `rest`.
Config with(const std::string& rest, int world = 1) {
  return parse("{\"train_micro_batch_size_per_gpu\": 1, " + rest + "}", world);
}

// The message of the DS_ERROR_CONFIG that the document must raise, without the anchor of its key;
// "" when it is accepted.
std::string refusal(const Json& document, int world = 1) {
  try {
    parse_config(document, world);
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_CONFIG) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return test::without_config_anchor(e.what());
  }
}

std::string refusal_with(const std::string& rest) {
  return refusal(Json::parse("{\"train_micro_batch_size_per_gpu\": 1, " + rest + "}"));
}

// Values of transformers.optimization (5.23) at chosen steps, by its formulas.
TEST(Config, schedules_of_the_trainer) {
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

TEST(Config, refused_schedules) {
  EXPECT_EQ(refusal_with("\"scheduler\": {\"type\": \"WarmupCosineLR\"}"),
            "scheduler.params.total_num_steps: missing; WarmupCosineLR needs it");
  EXPECT_EQ(
      refusal_with("\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.1}}"),
      "scheduler.params.cycle_max_lr: missing; OneCycle needs it");
  EXPECT_EQ(
      refusal_with("\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"total_num_steps\": 9}}"),
      "scheduler.params.total_num_steps: no parameter of scheduler.type \"WarmupLR\"");
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

TEST(Config, misspelt_keys_get_a_suggestion) {
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"stag\": 1}"),
            "zero_optimization.stag: unknown key; did you mean zero_optimization.stage?");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"stag\": null}"),
            "zero_optimization.stag: unknown key; did you mean zero_optimization.stage?");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"stage\": null}, \"scheduler\": null"), "");
  EXPECT_EQ(refusal_with("\"gradient_cliping\": null"),
            "gradient_cliping: unknown key; did you mean gradient_clipping?");
  EXPECT_EQ(refusal_with("\"stage\": 1"),
            "stage: unknown key; did you mean zero_optimization.stage?");
  EXPECT_EQ(refusal_with("\"gradient_cliping\": 1"),
            "gradient_cliping: unknown key; did you mean gradient_clipping?");
  EXPECT_EQ(refusal_with("\"zero_optimisation\": {}"),
            "zero_optimisation: unknown key; did you mean zero_optimization?");
  EXPECT_EQ(refusal_with("\"fp16\": {\"los_scale\": 1}"),
            "fp16.los_scale: unknown key; did you mean fp16.loss_scale?");
  EXPECT_EQ(refusal_with("\"lr_scheduler\": {}"),
            "lr_scheduler: unknown key; did you mean scheduler?");
  EXPECT_EQ(refusal_with("\"BF16\": {}"), "BF16: unknown key; did you mean bf16?");
  EXPECT_EQ(refusal_with("\"micro_batch_size\": 2"),
            "micro_batch_size: unknown key; did you mean train_micro_batch_size_per_gpu?");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"zzz\": 1}"),
            "zero_optimization.zzz: unknown key");
  // Compared letter by letter with every key this one would take seconds, and one of 30 MB minutes.
  std::string huge(1'000'000, 'A');
  EXPECT_NE(refusal_with("\"zero_optimization\": {\"" + huge + "\": 1}").find("unknown key"),
            std::string::npos);
  EXPECT_EQ(refusal_with("\"" + huge + "\": 1"), "");
}

// Names by which other programs call what training depends on: dropped with a warning, a run would
// train otherwise than its file says.
TEST(Config, usual_names_of_other_programs_are_refused) {
  const std::pair<const char*, const char*> cases[] = {
      {"zero", "zero_optimization"},
      {"zero_cfg", "zero_optimization"},
      {"zero3", "zero_optimization"},
      {"zero_stage", "zero_optimization.stage"},
      {"zero_quantized_weights", "zero_optimization.zero_quantized_weights"},
      {"lr", "optimizer.params.lr"},
      {"learning_rate", "optimizer.params.lr"},
      {"learningRate", "optimizer.params.lr"},
      {"Learning-Rate", "optimizer.params.lr"},
      {"learning_rat", "optimizer.params.lr"},
      {"wd", "optimizer.params.weight_decay"},
      {"weight_decay", "optimizer.params.weight_decay"},
      {"adam_beta2", "optimizer.params.betas"},
      {"epsilon", "optimizer.params.eps"},
      {"optim", "optimizer"},
      {"lr_scheduler_type", "scheduler.type"},
      {"warmup_steps", "scheduler.params.warmup_num_steps"},
      {"batch_size", "train_batch_size"},
      {"micro_batch_size", "train_micro_batch_size_per_gpu"},
      {"per_device_train_batch_size", "train_micro_batch_size_per_gpu"},
      {"grad_accum", "gradient_accumulation_steps"},
      {"gradient_accumulation", "gradient_accumulation_steps"},
      {"clip_grad", "gradient_clipping"},
      {"max_grad_norm", "gradient_clipping"},
      {"mixed_precision", "bf16.enabled or fp16.enabled"},
      {"use_bf16", "bf16.enabled"},
      {"seq_len", "run.sequence"},
      {"max_length", "run.sequence"},
      {"epochs", "run.steps"},
      {"max_steps", "run.steps"},
      {"optimizer.learning_rate", "optimizer.params.lr"},
      {"optimizer.name", "optimizer.type"},
      {"optimizer.params.learning_rate", "optimizer.params.lr"},
      {"optimizer.params.wd", "optimizer.params.weight_decay"},
      {"optimizer.params.beta1", "optimizer.params.betas"},
      {"scheduler.params.warmup_steps", "scheduler.params.warmup_num_steps"},
      {"scheduler.params.num_training_steps", "scheduler.params.total_num_steps"},
      {"zero_optimization.level", "zero_optimization.stage"},
      {"run.max_length", "run.sequence"},
      {"run.max_steps", "run.steps"},
      {"run.batch_size", "train_batch_size"},
      {"stage3", "zero_optimization.stage"},
      {"optim_args", "optimizer.params"},
      {"lr_groups", "optimizer.param_groups"},
      {"lr_scheduler_kwargs", "scheduler.params"},
      {"lr_warmup_fraction", "scheduler.params.warmup_num_steps"},
      {"lr_decay_iters", "scheduler.params.total_num_steps"},
      {"min_lr", "scheduler.params.min_lr_ratio or scheduler.params.warmup_min_lr"},
      {"average_tokens_across_devices", "loss_average"},
      {"frozen", "frozen_parameters"},
      {"reduce_dtype", "communication_data_type"},
      {"grad_dtype", "data_types.grad_accum_dtype"},
      {"attention_dropout", "model.dropout"},
      {"initial_loss_scale", "fp16.initial_scale_power"},
  };
  for (const auto& [name, meant] : cases) {
    std::string document = "1", path = name;
    for (size_t dot = path.rfind('.'); !path.empty(); dot = path.rfind('.')) {
      const std::string leaf = path.substr(dot == path.npos ? 0 : dot + 1);
      document = "\"" + leaf + "\": " + document;
      path.resize(dot == path.npos ? 0 : dot);
      if (!path.empty()) document = "{" + document + "}";
    }
    EXPECT_EQ(refusal_with(document),
              std::string(name) + ": unknown key; did you mean " + meant + "?");
  }
  EXPECT_EQ(refusal_with("\"zero\": {\"stage\": 3}"),
            "zero: unknown key; did you mean zero_optimization?");
  EXPECT_EQ(refusal_with("\"bf16\": true"),
            "bf16: expected a section, got true; did you mean {\"enabled\": true}?");
  EXPECT_EQ(refusal_with("\"optimizer\": \"Muon\""),
            "optimizer: expected a section, got \"Muon\"; did you mean {\"type\": \"Muon\"}?");
  // Sections that are written as one name.
  for (const auto& [name, meant] : {std::pair{"zero.stage", "zero_optimization"},
                                    {"optim.lr", "optimizer"},
                                    {"trainer.max_steps", "run.steps"},
                                    {"hparams.learning_rate", "optimizer.params.lr"}}) {
    EXPECT_EQ(refusal_with("\"" + std::string(name) + "\": 1"),
              std::string(name) + ": unknown key; did you mean " + meant +
                  "? Write sections as nested objects");
  }
  EXPECT_EQ(refusal_with("\"tracker.url\": 1"), "");
  // Names of comments and of what training does not depend on.
  for (const char* name : {"_lr", "//zero", "#learning_rate", "output_dir", "project", "author"}) {
    EXPECT_EQ(refusal_with("\"" + std::string(name) + "\": 1"), "") << name;
  }
}

TEST(Config, strangers_at_the_top_are_warnings) {
  for (const char* name :
       {"zzz", "_comment", "comms_config", "monitor_config", "cuda_visible_devices", "name"}) {
    const Config c = with(std::string("\"") + name + "\": {\"a\": 1}");
    EXPECT_EQ(c.warnings,
              std::vector<std::string>{std::string(name) + ": neither DeepSpeed nor libds reads "
                                                           "this key; it has no effect"});
  }
  EXPECT_TRUE(with("\"steps_per_print\": 1").warnings.empty());
}

TEST(Config, a_section_without_its_switch_is_a_warning) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("fp16": {"loss_scale": 8})", "fp16.loss_scale: has no effect without fp16.enabled true"},
      {R"("bf16": {"check_grad_overflow": false})",
       "bf16.check_grad_overflow: has no effect without bf16.enabled true"},
      {R"("curriculum_learning": {"curriculum_type": "seqlen", "min_difficulty": 2})",
       "curriculum_learning.curriculum_type: has no effect without curriculum_learning.enabled "
       "true"},
      {R"("data_efficiency": {"enabled": true, "data_sampling": {"enabled": true,
          "dynamic_batching": {"max_tokens": 9}}})",
       "data_efficiency.data_sampling.dynamic_batching.max_tokens: has no effect without "
       "data_efficiency.data_sampling.dynamic_batching.enabled true"},
  };
  for (const auto& [section, warning] : cases)
    EXPECT_EQ(with(section).warnings, std::vector<std::string>{warning}) << section;
  for (const char* section : {R"("fp16": {"enabled": false, "loss_scale": 8})", R"("fp16": {})",
                              R"("bf16": {"enabled": true, "check_grad_overflow": false})",
                              R"("tensorboard": {"job_name": "a"})"}) {
    EXPECT_TRUE(with(section).warnings.empty()) << section;
  }
}

TEST(Config, a_template_without_batches_has_a_micro_batch_of_1) {
  const Config c = parse("{\"zero_optimization\": {\"stage\": 1}}", 3);
  EXPECT_EQ(c.train_batch, 3);
  EXPECT_EQ(c.warnings.size(), 1u);
  EXPECT_EQ(c.origins.at("train_micro_batch_size_per_gpu"), "derived");
  EXPECT_NE(refusal(Json::parse("{}")), "");
  EXPECT_NE(refusal(Json::parse("{\"gradient_accumulation_steps\": 2, \"zero_optimization\": {}}")),
            "");
}

TEST(Config, all_refusals_at_once) {
  const Json document =
      Json::parse(R"({"train_batch_size": 4, "zero_optimization": {"stag": 1, "stage": 9},
      "optimizer": {"type": "Adam", "params": {"lr": -1, "nesterov": true}}, "gradient_cliping": 2})");
  ConfigRefusals refusals;
  parse_config(document, 1, refusals);
  std::set<std::string> keys;
  for (const Error& error : refusals.errors) keys.insert(error.details().key);
  EXPECT_EQ(keys, (std::set<std::string>{"zero_optimization.stag", "zero_optimization.stage",
                                         "optimizer.params.lr", "optimizer.params.nesterov",
                                         "gradient_cliping"}));
  EXPECT_EQ(refusals.errors.size(), 5u) << "a key is refused once";
  EXPECT_NE(refusal(document).find("(and 4 more: `libds config` lists all)"), std::string::npos);
  ConfigRefusals of_type;
  parse_config(Json::parse(R"({"train_batch_size": 1, "optimizer": {"type": "Adafactor",
                                                                     "params": {"freeze_step": 3, "factor_max": 4}}})"),
               1, of_type);
  ASSERT_EQ(of_type.errors.size(), 1u)
      << "parameters of a type that is refused are no further refusals";
  EXPECT_EQ(of_type.errors[0].details().key, "optimizer.type");
  ConfigRefusals again;
  const Config config = parse_config(document, 1, again);
  const std::string text = config_text(config, again, document);
  EXPECT_EQ(text.find("Refused:\n"), 0u) << text;
  for (const char* row : {"9 ", "-1 "}) {
    const size_t at =
        text.find(std::string(row[0] == '9' ? "zero_optimization.stage " : "optimizer.params.lr "));
    const std::string line = text.substr(at, text.find('\n', at) - at);
    EXPECT_NE(line.find(row), std::string::npos) << line;
    EXPECT_TRUE(line.ends_with("refused")) << line;
  }
  const Json described = config_json(config, again, document);
  EXPECT_EQ(described.at("config").at("zero_optimization").at("stage").dump(), "9");
  EXPECT_EQ(described.at("origins").at("zero_optimization.stage").dump(), "\"refused\"");
}

TEST(Config, warns_where_bits_depend_on_the_ranks_all_the_same) {
  auto warnings = [](const std::string& more) {
    return parse_config(
               Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "reproducible": true, )" +
                           more + "}"),
               1)
        .warnings;
  };
  EXPECT_EQ(warnings(R"("gradient_compression": {"type": "int8"})"),
            std::vector<std::string>{
                "reproducible: bits depend on the number of ranks all the same, because of "
                "gradient_compression.type \"int8\", whose codes are of one rank's elements"});
  for (const char* codes :
       {R"("zero_optimization": {"stage": 2, "zero_quantized_gradients": true})",
        R"("optimizer": {"type": "OneBitAdam"})"})
    EXPECT_EQ(warnings(codes).size(), 1u) << codes;
  EXPECT_TRUE(warnings(R"("communication_data_type": "bf16")").empty());
}

TEST(Config, warns_of_a_report_that_no_step_makes) {
  const Config c =
      parse_config(Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "run": {"steps": 4},
                                                "flops_profiler": {"enabled": true, "profile_step": 99}})"),
                   1);
  EXPECT_EQ(c.warnings,
            std::vector<std::string>{
                "flops_profiler.profile_step: 99 is beyond run.steps 4: there will be no report"});
}

// What Hugging Face's integration makes of "auto" with the defaults of TrainingArguments.
TEST(Config, auto_is_what_the_trainer_fills_in) {
  const Config c = parse(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
      "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "bf16": {"enabled": "auto"},
      "fp16": {"enabled": "auto", "loss_scale": 0}, "run": {"steps": 700},
      "optimizer": {"type": "AdamW",
                    "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
      "scheduler": {"type": "WarmupDecayLR",
                    "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto",
                               "total_num_steps": "auto"}},
      "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                            "stage3_param_persistence_threshold": "auto",
                            "stage3_max_live_parameters": "auto"},
      "model": {"family": "gpt", "layers": 2, "hidden": 64, "heads": 4}})",
                         4);
  EXPECT_EQ(c.micro_batch, 8);
  EXPECT_EQ(c.accumulation, 1);
  EXPECT_EQ(c.train_batch, 32);
  EXPECT_EQ(c.gradient_clipping, 1.0);
  EXPECT_EQ(c.compute, DS_DTYPE_F32);
  EXPECT_EQ(c.optimizer.lr, 5e-5);
  EXPECT_EQ(c.optimizer.weight_decay, 0);
  EXPECT_EQ(c.scheduler.numbers.at("warmup_max_lr")[0], 5e-5);
  EXPECT_EQ(c.scheduler.numbers.at("total_num_steps")[0], 700);
  EXPECT_EQ(c.zero.reduce_bucket_size, 64 * 64);
  EXPECT_EQ(c.zero.prefetch_bucket_size, 3686);
  EXPECT_EQ(c.zero.param_persistence_threshold, 640);
  EXPECT_EQ(c.zero.max_live_parameters, 1000000000);
  for (const char* path :
       {"train_micro_batch_size_per_gpu", "optimizer.params.lr", "bf16.enabled",
        "scheduler.params.total_num_steps", "zero_optimization.reduce_bucket_size"}) {
    EXPECT_EQ(c.origins.at(path), "auto") << path;
  }
  const Config without = with(R"("zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"})");
  EXPECT_EQ(without.waiting, std::vector<std::string>{"zero_optimization.reduce_bucket_size"});
  EXPECT_EQ(parse(R"({"train_batch_size": "auto"})", 3).train_batch, 24);
  EXPECT_EQ(
      refusal_with("\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": \"auto\"}}"),
      "optimizer.params.momentum: Hugging Face's integration fills no value in for \"auto\" here; "
      "give "
      "one");
  EXPECT_NE(refusal_with("\"steps_per_print\": \"auto\""), "");
}

TEST(Config, kinds_and_ranges_name_the_path_and_the_value) {
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"stage\": 4}"),
            "zero_optimization.stage: 4 is above 3 (it must be 0 to 3)");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"reduce_bucket_size\": 1.5}"),
            "zero_optimization.reduce_bucket_size: expected an integer, got 1.5");
  EXPECT_EQ(refusal_with("\"zero_optimization\": 2"),
            "zero_optimization: expected a section, got 2; did you mean {\"stage\": 2}?");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"offload_param\": {\"device\": \"gpu\"}}"),
            "zero_optimization.offload_param.device: expected \"none\", \"cpu\" or \"nvme\", got "
            "\"gpu\"");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"params\": {\"lr\": \"fast\"}}"),
            "optimizer.params.lr: expected a number, got \"fast\"");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"params\": {\"betas\": [0.9]}}"),
            "optimizer.params.betas: expected two numbers, got [0.9]");
  EXPECT_EQ(
      refusal_with("\"memory_budget\": {\"host\": \"2 gigs\"}"),
      "memory_budget.host: expected bytes as an integer or as text like \"2GiB\", got \"2 gigs\"");
}

TEST(Config, optimizers_take_their_own_parameters_only) {
  const Config c = with(
      "\"optimizer\": {\"type\": \"sgd\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9, "
      "\"nesterov\": true, "
      "\"weight_decay\": 0.01, \"dampening\": 0}}");
  EXPECT_EQ(c.optimizer.type, "SGD");
  EXPECT_EQ(c.optimizer.momentum, 0.9);
  EXPECT_TRUE(c.optimizer.nesterov);
  EXPECT_EQ(c.optimizer.weight_decay, 0.01);
  EXPECT_EQ(
      refusal_with("\"optimizer\": {\"type\": \"SGD\", \"params\": {\"betas\": [0.9, 0.95]}}"),
      "optimizer.params.betas: no parameter of optimizer.type \"SGD\"");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"params\": {\"momentum\": 0.9}}"),
            "optimizer.params.momentum: no parameter of optimizer.type \"AdamW\"");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"type\": \"SGD\", \"params\": {\"nesterov\": true}}"),
            "optimizer.params.nesterov: true needs optimizer.params.momentum above 0, got 0");
  for (const auto& [section, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"type": "SGD", "params": {"dampening": 0.1}})", ""},
           {R"({"type": "SGD", "params": {"momentum": 0.9, "nesterov": true, "dampening": 0.1}})",
            "optimizer.params.nesterov: true needs dampening 0, got 0.1"},
           {R"({"type": "Lion", "params": {"eps": 1e-8}})",
            "optimizer.params.eps: no parameter of optimizer.type \"Lion\""},
           {R"({"type": "adagrad", "params": {"betas": [0.9, 0.99]}})",
            "optimizer.params.betas: no parameter of optimizer.type \"Adagrad\""},
           {R"({"type": "lamb", "params": {"adam_w_mode": true}})",
            "optimizer.params.adam_w_mode: no parameter of optimizer.type \"Lamb\""},
           {R"({"type": "Adam", "params": {"max_coeff": 1}})",
            "optimizer.params.max_coeff: no parameter of optimizer.type \"Adam\""},
           {R"({"type": "Lamb", "params": {"min_coeff": 3, "max_coeff": 2}})",
            "optimizer.params.min_coeff 3 is above optimizer.params.max_coeff 2"},
           {R"({"type": "Lamb", "params": {"amsgrad": true}})",
            "optimizer.params.amsgrad: true is unsupported by this version; supported: false; no "
            "optimizer "
            "here "
            "keeps the largest second moment"},
           {R"({"type": "Adagrad", "params": {"lr_decay": -1}})",
            "optimizer.params.lr_decay: -1 is below 0"},
           {R"({"type": "Lion", "param_groups": [{"params": "a", "eps": 1}]})",
            "optimizer.param_groups[0].eps: no parameter of optimizer.type \"Lion\""},
           {R"({"states": "f16"})",
            "optimizer.states: \"f16\" is unknown; supported: f32, bf16, u8"},
           {R"({"rounding": "stochastic"})",
            "optimizer.rounding: \"stochastic\" needs masters or states in fewer bits than f32, "
            "optimizer.states is \"f32\""},
           {R"({"type": "Lion", "states": "u8"})",
            "optimizer.states: \"u8\" is for Adam and AdamW, optimizer.type is \"Lion\""},
           {R"({"type": "Muon", "params": {"momentum": 1.5}})",
            "optimizer.params.momentum: must be below 1 with Muon, which averages, got 1.5"},
           {R"({"type": "Muon", "states": "bf16"})",
            "optimizer.type: \"Muon\" keeps masters and states in f32, optimizer.states is bf16"},
           {R"({"type": "Muon", "params": {"ns_method": "cubic"}})",
            "optimizer.params.ns_method: \"cubic\" is unknown; supported: gram, standard"},
           {R"({"type": "Muon", "params": {"adam_lr": -1}})",
            "optimizer.params.adam_lr: -1 is below 0"},
           {R"({"type": "Adam", "params": {"muon_lr": 1}})",
            "optimizer.params.muon_lr: no parameter of optimizer.type \"Adam\""},
           {R"({"type": "Muon", "params": {"per_head_muon": true}})",
            "optimizer.params.per_head_muon: true is unsupported by this version; supported: "
            "false; Muon's "
            "matrices are whole parameters here"},
           {R"({"type": "Lamb", "states": "bf16"})",
            "optimizer.type: \"Lamb\" keeps masters and states in f32, optimizer.states is bf16"},
           {R"({"states": "bf16"}, "bf16": {"bf16_master_weights_and_grads": true})",
            "bf16.bf16_master_weights_and_grads: true needs bf16.enabled true, got false"},
           {R"({}, "bf16": {"enabled": true, "bf16_optimizer_states": true})",
            "bf16.bf16_optimizer_states: true needs bf16.bf16_master_weights_and_grads true, got "
            "false; "
            "optimizer.states \"bf16\" is beside f32 masters"},
           {R"({"type": "Lion", "params": {"fp32_optimizer_states": false}})",
            "optimizer.params.fp32_optimizer_states: no parameter of optimizer.type \"Lion\""},
           {R"({"no_decay": "biases"})",
            "optimizer.no_decay: \"biases\" is unknown; supported: norms_and_biases"},
       }) {
    EXPECT_EQ(refusal_with("\"optimizer\": " + section), message) << section;
  }
}

TEST(Config, each_optimizer_has_its_own_defaults) {
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

// As DeepSpeed resolves them: what is given for a half, then lr, then the default of the half; a
// group's lr is that of both halves.
TEST(Config, muon_has_two_rates) {
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

// DeepSpeed's classes refuse such values, too.
TEST(Config, keys_without_effect_have_values_of_their_kind) {
  const std::string offload = "\"offload_optimizer\": {\"device\": \"cpu\", ";
  const auto zero = [](const std::string& text) { return "\"zero_optimization\": {" + text + "}"; };
  EXPECT_EQ(refusal_with(zero("\"contiguous_gradients\": \"please\"")),
            "zero_optimization.contiguous_gradients: expected true or false, got \"please\"");
  EXPECT_EQ(refusal_with(zero(offload + "\"pin_memory\": {}}")),
            "zero_optimization.offload_optimizer.pin_memory: expected true or false, got {}");
  EXPECT_EQ(
      refusal_with(zero(offload + "\"cpuadam_cores_perc\": 1.5}")),
      "zero_optimization.offload_optimizer.cpuadam_cores_perc: 1.5 is above 1 (it must be 0 to 1)");
  EXPECT_EQ(refusal_with(zero("\"allgather_bucket_size\": -1")),
            "zero_optimization.allgather_bucket_size: -1 is below 0");
  EXPECT_EQ(refusal_with(zero("\"stage3_module_granularity_threshold\": 2.5")),
            "zero_optimization.stage3_module_granularity_threshold: expected an integer, got 2.5");
  EXPECT_EQ(refusal_with(zero("\"leaf_module\": {\"names\": [3]}")),
            "zero_optimization.leaf_module.names: expected an array of strings, got [3]");
  EXPECT_EQ(refusal_with("\"comms_logger\": {\"debug\": \"much\"}"),
            "comms_logger.debug: expected true or false, got \"much\"");
  EXPECT_EQ(refusal_with("\"checkpoint\": {\"tag_validation\": \"FAIL\"}"), "");
  EXPECT_EQ(refusal_with("\"checkpoint\": {\"tag_validation\": \"maybe\"}"),
            "checkpoint.tag_validation: \"maybe\" is unknown; supported: Ignore, Warn, Fail");
  EXPECT_EQ(refusal_with(zero("\"allgather_bucket_size\": \"500000000\"")), "");
  EXPECT_EQ(refusal_with("\"compile\": {\"deepcompile\": \"auto\", \"kwargs\": {\"any\": 1}}"), "");
  EXPECT_EQ(refusal_with(zero(offload + "\"pin_memory\": null}, \"allgather_bucket_size\": 5e8")),
            "");
}

TEST(Config, booleans_are_what_deepspeed_takes_for_them) {
  const auto overlaps = [](const std::string& value) {
    return with("\"zero_optimization\": {\"overlap_comm\": " + value + "}").zero.overlap_comm;
  };
  for (const char* yes : {"true", "1", "1.0", "\"true\"", "\"Yes\"", "\"on\"", "\"1\""})
    EXPECT_TRUE(overlaps(yes));
  for (const char* no : {"false", "0", "0.0", "\"False\"", "\"n\"", "\"off\"", "\"0\""})
    EXPECT_FALSE(overlaps(no));
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"overlap_comm\": 2}"),
            "zero_optimization.overlap_comm: expected true or false, got 2");
  // A text is true to DeepSpeed there, whatever it says.
  EXPECT_EQ(refusal_with("\"wall_clock_breakdown\": \"false\""),
            "wall_clock_breakdown: expected true or false, got \"false\"");
  EXPECT_EQ(refusal_with("\"hybrid_engine\": {\"enabled\": \"off\"}"), "");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"legacy_stage1\": \"false\"}"), "");
  EXPECT_NE(refusal_with("\"sequence_parallel_size\": true"), "");
  EXPECT_EQ(with("\"data\": {\"packing\": 0}").data.packing, "none");
}

TEST(Config, activations_of_a_cpu_are_checkpointed_there) {
  const std::string key = "\"activation_checkpointing\": {\"cpu_checkpointing\": true}";
  EXPECT_EQ(with(key).without_effect,
            std::vector<std::string>{"activation_checkpointing.cpu_checkpointing"});
  EXPECT_EQ(
      refusal_with("\"device\": \"cuda:0\", " + key),
      "activation_checkpointing.cpu_checkpointing: true is unsupported with device cuda:0, whose "
      "activations stay in its memory; use recompute");
  EXPECT_NE(refusal_with("\"device\": \"separate\", " + key), "");
  EXPECT_EQ(refusal_with("\"device\": \"cuda:0\", \"activation_checkpointing\": "
                         "{\"cpu_checkpointing\": false}"),
            "");
}

TEST(Config, unsupported_features_are_refused_by_path_and_their_defaults_accepted) {
  EXPECT_EQ(refusal_with("\"amp\": {\"enabled\": true}"),
            "amp.enabled: true is unsupported by this version; apex is no part of libds; use "
            "fp16.enabled or "
            "bf16.enabled");
  EXPECT_EQ(refusal_with("\"amp\": {\"enabled\": false, \"opt_level\": 0}"), "");
  EXPECT_EQ(refusal_with("\"amp\": {\"enabled\": 0}"), "");
  EXPECT_EQ(with("\"prescale_gradients\": true").without_effect,
            std::vector<std::string>{"prescale_gradients"});
  EXPECT_EQ(refusal_with("\"tensor_parallel\": {\"autotp_size\": 1}"), "");
  EXPECT_EQ(refusal_with("\"tensor_parallel\": {\"autotp_size\": 2}"),
            "tensor_parallel.autotp_size: 2 is unsupported by this version; libds has no tensor "
            "parallelism yet");
  EXPECT_EQ(refusal_with("\"sparse_attention\": {\"mode\": \"fixed\"}"),
            "sparse_attention: unsupported by this version; libds has no block-sparse attention");
  const std::string compression =
      "\"compression_training\": {\"weight_quantization\": "
      "{\"shared_parameters\": {\"fp16_mixed_quantize\": {\"enabled\": false}, ";
  EXPECT_EQ(refusal_with(compression + "\"enabled\": false}}}"), "");
  EXPECT_EQ(refusal_with(compression + "\"enabled\": true}}}"),
            "compression_training.weight_quantization.shared_parameters.enabled: true is "
            "unsupported by this "
            "version; libds compresses no models");
  const std::string ltd =
      "\"data_routing\": {\"enabled\": true, \"random_ltd\": {\"enabled\": true}}}";
  EXPECT_EQ(refusal_with("\"data_efficiency\": {\"enabled\": false, " + ltd), "");
  EXPECT_NE(refusal_with("\"data_efficiency\": {\"enabled\": true, " + ltd)
                .find("data_efficiency.data_routing.random_ltd.enabled: true is unsupported"),
            std::string::npos);
  const std::string metrics =
      R"("data_sampling": {"enabled": true, "curriculum_learning": {"enabled": true}}})";
  EXPECT_NE(
      refusal_with(R"("data_efficiency": {"enabled": true, )" + metrics)
          .find("data_efficiency.data_sampling.curriculum_learning.enabled: true is unsupported"),
      std::string::npos);
  const std::string dynamic =
      R"("data_sampling": {"enabled": true, "dynamic_batching": {"enabled": true}}})";
  EXPECT_EQ(with(R"("data_efficiency": {"enabled": false, )" + dynamic).warnings.size(), 1u);
  EXPECT_NE(refusal_with(R"("data_efficiency": {"enabled": true, )" + dynamic)
                .find("max_tokens: missing"),
            std::string::npos);
  EXPECT_NE(
      refusal_with(R"("progressive_layer_drop": {"enabled": true, "theta": 0.5, "gamma": 0.001})")
          .find("DeepSpeed hands theta to the model"),
      std::string::npos);
  EXPECT_EQ(with(R"("autotuning": {"enabled": true, "fast": true})").warnings.size(), 1u);
  EXPECT_EQ(refusal_with(R"("autotuning": {"enabled": true, "fats": true})"),
            "autotuning.fats: unknown key; did you mean autotuning.fast?");
  EXPECT_EQ(refusal_with("\"reduction\": \"vendor\""),
            "reduction: vendor is unsupported by this version; supported: micro, boundary, tree");
}

TEST(Config, precision_is_one_of_f32_bf16_fp16_and_autocast) {
  auto section = [](const char* text) { return with(text, 1); };
  EXPECT_EQ(section("\"bf16\": {\"enabled\": false}, \"fp16\": {\"enabled\": true}").compute,
            DS_DTYPE_F16);
  EXPECT_EQ(section("\"fp16\": {\"enabled\": false}, \"bf16\": {\"enabled\": true}").compute,
            DS_DTYPE_BF16);
  const Config c = section(R"("fp16": {"enabled": true, "auto_cast": true, "loss_scale": 0,
    "initial_scale_power": 32, "loss_scale_window": 500, "hysteresis": 1, "min_loss_scale": "auto",
    "consecutive_hysteresis": true})");
  EXPECT_TRUE(c.auto_cast && c.loss_scale.consecutive_hysteresis);
  EXPECT_EQ(c.loss_scale.initial_scale_power, 32);
  EXPECT_EQ(c.loss_scale.window, 500);
  EXPECT_EQ(c.loss_scale.hysteresis, 1);
  EXPECT_EQ(c.loss_scale.min_loss_scale, 1);
  EXPECT_FALSE(section("\"bf16\": {\"check_grad_overflow\": false}").check_grad_overflow);
  for (const char* dtype : {"bfloat16", "torch.bfloat16", "bf16"})
    EXPECT_EQ(refusal_with(fmt::format(
                  "\"torch_autocast\": {{\"enabled\": true, \"dtype\": \"{}\"}}", dtype)),
              "");
  for (const char* same : {"\"communication_data_type\": \"fp32\"",
                           "\"communication_data_type\": \"BF16\", \"bf16\": {\"enabled\": true}",
                           "\"communication_data_type\": \"fp16\", \"fp16\": {\"enabled\": true}"})
    EXPECT_EQ(refusal_with(same), "") << same;
  EXPECT_EQ(refusal_with("\"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}"),
            "fp16.enabled: true excludes bf16.enabled: true; enable one of them");
  EXPECT_EQ(refusal_with("\"fp16\": {\"loss_scale\": -1}"),
            "fp16.loss_scale: -1 is below 0 (it must be 0 to 1e+38)");
  for (const char* name : {"loss_scale", "min_loss_scale"}) {
    EXPECT_EQ(
        refusal_with(fmt::format("\"fp16\": {{\"enabled\": true, \"{}\": 1e-39}}", name)),
        fmt::format(
            "fp16.{}: 1e-39 is below 1e-38, under which gradients cannot be divided by it in f32",
            name));
    EXPECT_EQ(refusal_with(fmt::format("\"fp16\": {{\"enabled\": true, \"{}\": 1e-38}}", name)),
              "");
  }
  for (const char* name : {"loss_scale_window", "min_loss_scale"}) {
    const std::string zero = fmt::format("\"{}\": 0", name);
    EXPECT_EQ(refusal_with("\"fp16\": {\"enabled\": true, " + zero + "}"),
              fmt::format(
                  "fp16.{}: must be above 0 where fp16.loss_scale is 0, which means dynamic; got 0",
                  name));
    EXPECT_EQ(refusal_with("\"fp16\": {\"enabled\": true, \"loss_scale\": 8, " + zero + "}"), "");
    EXPECT_EQ(refusal_with("\"fp16\": {\"enabled\": false, " + zero + "}"), "");
  }
  EXPECT_EQ(refusal_with("\"fp16\": {\"fp16_master_weights_and_grads\": true}"),
            "fp16.fp16_master_weights_and_grads: true is unsupported by this version; supported: "
            "false; master "
            "weights are f32");
  EXPECT_EQ(refusal_with("\"torch_autocast\": {\"enabled\": true, \"dtype\": \"float16\"}"), "");
  EXPECT_EQ(refusal_with("\"torch_autocast\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}"),
            "");
  EXPECT_EQ(refusal_with("\"torch_autocast\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}"),
            "torch_autocast.dtype: \"bfloat16\" excludes fp16.enabled: true, with which parameters "
            "have another "
            "type");
  for (const char* type : {"fp16", "bf16", "fp32"}) {
    EXPECT_EQ(refusal_with(fmt::format("\"communication_data_type\": \"{}\"", type)), "");
    EXPECT_EQ(refusal_with(fmt::format("\"data_types\": {{\"grad_accum_dtype\": \"{}\"}}", type)),
              "");
  }
  EXPECT_EQ(refusal_with("\"data_types\": {\"grad_accum_dtype\": null}"), "");
  EXPECT_EQ(
      refusal_with("\"data_types\": {\"grad_accum_dtype\": \"bf16\"}, \"reproducible\": true"),
      "data_types.grad_accum_dtype: \"bf16\" excludes reproducible: true, whose sums over "
      "micro-steps are "
      "the same for any number of ranks only in f32");
  EXPECT_EQ(
      refusal_with("\"data_types\": {\"grad_accum_dtype\": \"fp16\"}, \"optimizer\": {\"type\": "
                   "\"OneBitAdam\", \"params\": {\"lr\": 1}}"),
      "data_types.grad_accum_dtype: \"fp16\" excludes OneBitAdam, whose momentum is moved by f32 "
      "sums");
}

TEST(Config, a_device_is_named) {
  EXPECT_EQ(with("\"steps_per_print\": 1").device, "cpu");
  EXPECT_EQ(with(R"("device": "separate")").device, "separate");
  EXPECT_EQ(with(R"("device": "CPU")").device, "cpu");
  EXPECT_EQ(with(R"("device": "cuda:1")").device, "cuda:1");
  EXPECT_EQ(with(R"("device": "cuda")").device, "cuda");
  for (const char* name : {"gpu", "cuda:", "cuda:-1", "cuda:1x"}) {
    EXPECT_EQ(
        refusal_with(fmt::format("\"device\": \"{}\"", name)),
        fmt::format("device: \"{}\" is unknown; supported: cpu, separate, cuda, cuda:N", name));
  }
  EXPECT_EQ(refusal_with(R"("device": "cuda:N")"),
            "device: \"cuda:N\" must have the number of a device, as in \"cuda:0\"");
  EXPECT_NE(refusal_with(R"("device": 3)"), "");
  const Config c = with(R"("device": "separate")");
  EXPECT_EQ(c.effective().at("config").at("device").string(), "separate");
  EXPECT_EQ(c.shared_text(), with(R"("device": "cpu", "emulate_tiers": true)").shared_text())
      << "ranks may run on different devices whose tiers are apart";
  EXPECT_NE(c.shared_text(), with(R"("device": "cpu")").shared_text()) << "their programs differ";
}

TEST(Config, names_old_and_new) {
  EXPECT_EQ(with("\"zero_optimization\": {\"prefetch_bucket_size\": 10}").zero.prefetch_bucket_size,
            10);
  EXPECT_EQ(with("\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 1e7}")
                .zero.prefetch_bucket_size,
            10000000);
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"prefetch_bucket_size\": 1, "
                         "\"stage3_prefetch_bucket_size\": 1}"),
            "zero_optimization.prefetch_bucket_size and "
            "zero_optimization.stage3_prefetch_bucket_size are "
            "two names of "
            "one key; give one");
  EXPECT_EQ(with("\"zero_optimization\": {\"cpu_offload\": true}").zero.optimizer_tier, Tier::host);
  EXPECT_EQ(with("\"zero_optimization\": {\"cpu_offload\": false}").zero.optimizer_tier,
            Tier::device);
  EXPECT_NE(refusal_with("\"zero_optimization\": {\"cpu_offload\": true, \"offload_optimizer\": "
                         "{\"device\": \"cpu\"}}"),
            "");
  EXPECT_EQ(with("\"zero_optimization\": true").zero.stage, 1);
  EXPECT_EQ(with("\"bfloat16\": {\"enabled\": true}").compute, DS_DTYPE_BF16);
  EXPECT_EQ(
      with("\"zero_optimization\": {\"reduce_bucket_size\": \"auto\"}").zero.reduce_bucket_size,
      500000000);
  EXPECT_TRUE(
      with("\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": null}").zero.overlap_comm);
}

TEST(Config, optimizer_and_defaults) {
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

TEST(Config, offload_takes_every_stage_and_one_folder) {
  for (int stage = 0; stage < 4; ++stage) {
    const Config c = with("\"zero_optimization\": {\"stage\": " + std::to_string(stage) +
                          ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": "
                          "\"scratch\", \"buffer_count\": 3},"
                          " \"offload_param\": {\"device\": \"cpu\", \"buffer_count\": 9}}");
    EXPECT_EQ(c.zero.optimizer_tier, Tier::nvme);
    EXPECT_EQ(c.zero.param_tier, Tier::host);
    EXPECT_EQ(c.zero.nvme_path, "scratch");
    EXPECT_EQ(c.zero.buffer_count, 3);
  }
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\"}}"),
            "zero_optimization.offload_optimizer.nvme_path: missing; device is \"nvme\"");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", "
                         "\"nvme_path\": \"a\"}, "
                         "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"b\"}}"),
            "zero_optimization.offload_param.nvme_path: \"b\" differs from \"a\" of the other "
            "offload section; one "
            "folder is used");
}

TEST(Config, own_keys) {
  const Config c = with(
      R"("memory_budget": {"device": "2GiB", "host": 1000, "nvme": "1.5 MB"}, "emulate_tiers": true,
    "model": {"family": "gpt", "layers": 2, "hidden": 64, "heads": 4}, "run": {"sequence": 32, "seed": 7, "threads": 2},
    "data": {"paths": "corpus", "heldout": 0.1})");
  EXPECT_EQ(c.memory_budget.device, int64_t{2} << 30);
  EXPECT_EQ(c.memory_budget.host, 1000);
  EXPECT_EQ(c.memory_budget.nvme, 1500000);
  EXPECT_TRUE(c.emulate_tiers);
  EXPECT_EQ(c.model.vocab, 256);
  EXPECT_EQ(c.model.positions, 32);
  EXPECT_EQ(c.data.paths, std::vector<std::string>{"corpus"});
  EXPECT_EQ(c.run.seed, 7u);
  EXPECT_EQ(refusal_with(R"("model": {"family": "gpt", "layers": 2, "hidden": 10, "heads": 4})"),
            "model.hidden 10 is no multiple of model.heads 4");
  EXPECT_EQ(
      refusal_with(
          R"("model": {"family": "gpt", "layers": 2, "hidden": 8, "heads": 4, "positions": 64})"),
      "run.sequence 128 is above model.positions 64");
}

TEST(Config, sizes_that_overflow_are_refused_by_key_value_and_limit) {
  const std::string model = R"("model": {"family": "gpt", "layers": 2, "hidden": 8, "heads": 2)";
  const std::map<std::string, std::string> refused = {
      {R"("gradient_accumulation_steps": 65537)",
       "gradient_accumulation_steps: 65537 is above 65536"},
      {R"("gradient_accumulation_steps": 1e300)",
       "gradient_accumulation_steps: expected an integer, got 1e+300"},
      {R"("model": {"layers": 1001})", "model.layers: 1001 is above 1000"},
      {R"("model": {"hidden": 2147483648})", "model.hidden: 2147483648 is above 2147483647"},
      {R"("run": {"sequence": 9223372036854775807})",
       "run.sequence: 9.223372036854776e+18 is above 2147483647"},
      {R"("run": {"threads": 1025})", "run.threads: 1025 is above 1024"},
      {R"("aio": {"block_size": 1073742336})", "aio.block_size: 1073742336 is above 1073741824"},
      {R"("data": {"max_bytes": 0})", "data.max_bytes: 0 is below 1"},
      {R"("data": {"max_bytes": "0.5 B"})", "data.max_bytes: 0 is below 1"},
      {R"("data": {"max_bytes": "2 TiB"})", "data.max_bytes: 2199023255552 is above 1099511627776"},
      {R"("optimizer": {"params": {"betas": [0.9, 1]}})",
       "optimizer.params.betas[1]: 1 is not below 1"},
      {R"("optimizer": {"params": {"betas": [1.0, 0.9]}})",
       "optimizer.params.betas[0]: 1 is not below 1"},
      {R"("zero_optimization": {"sub_group_size": 1e16})",
       "zero_optimization.sub_group_size: 1e+16 is above 1000000000000000"},
      {model + R"(}, "gradient_accumulation_steps": 65536, "run": {"sequence": 32768})",
       "train_micro_batch_size_per_gpu 1 * gradient_accumulation_steps 65536 * run.sequence 32768 "
       "= "
       "2147483648 "
       "tokens of a rank's step is above 2147483647"},
      {R"("model": {"family": "gpt", "layers": 1000, "hidden": 1048576, "heads": 2})",
       "model.layers 1000 * model.hidden 1048576 * model.hidden 1048576 = 1099511627776000 weights "
       "is "
       "above "
       "8796093022208"},
      {model + R"(, "vocab": 2147483647}, "run": {"sequence": 1048576})",
       "train_micro_batch_size_per_gpu 1 * run.sequence 1048576 * model.vocab 2147483647 = "
       "2251799812636672 "
       "values "
       "is above 1125899906842624"},
  };
  // What follows is the range where it has two ends.
  for (const auto& [rest, message] : refused)
    EXPECT_EQ(refusal_with(rest).substr(0, message.size()), message) << rest;
  EXPECT_EQ(refusal(Json::parse(R"({"train_batch_size": 2147483648})")),
            "train_batch_size: 2147483648 is above 2147483647");
  EXPECT_EQ(
      refusal(Json::parse(R"({"train_micro_batch_size_per_gpu": 2147483647})"), 2),
      "train_micro_batch_size_per_gpu 2147483647 * gradient_accumulation_steps 1 * world size 2 is "
      "above 2147483647");
  EXPECT_EQ(
      refusal(Json::parse(R"({"train_batch_size": 131074, "train_micro_batch_size_per_gpu": 1})"),
              2),
      "train_batch_size 131074 / train_micro_batch_size_per_gpu 1 / world size 2 makes "
      "gradient_accumulation_steps 65537, above 65536");
  EXPECT_EQ(
      refusal(Json::parse(R"({"train_batch_size": 65536, "train_micro_batch_size_per_gpu": 1})")),
      "");
  EXPECT_EQ(refusal_with(model + R"(, "vocab": 250000}, "run": {"sequence": 1048576})"), "");
}

TEST(Config, reproducible_means_tree) {
  const Config c = with("\"reproducible\": true, \"gradient_accumulation_steps\": 2", 2);
  EXPECT_EQ(c.reduction, "tree");
  EXPECT_EQ(
      refusal(Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3,
                                    "reproducible": true})"),
              2),
      "reproducible: gradient_accumulation_steps 3 * world size 2 = 6 leaves is no power of two");
  EXPECT_EQ(refusal_with("\"reproducible\": true, \"reduction\": \"micro\""),
            "reduction: \"micro\" contradicts reproducible: true, which needs \"tree\"");
  EXPECT_EQ(refusal_with("\"reproducible\": true, \"reduction\": \"boundary\""),
            "reduction: \"boundary\" contradicts reproducible: true, which needs \"tree\"");
}

TEST(Config, reduction_at_the_boundary_is_of_whole_gradients) {
  for (int stage = 0; stage <= 3; ++stage) {
    const std::string given =
        fmt::format(R"("reduction": "boundary", "zero_optimization": {{"stage": {}}})", stage);
    if (stage < 2) {
      EXPECT_EQ(with(given).reduction, "boundary");
      continue;
    }
    EXPECT_EQ(
        refusal_with(given),
        fmt::format("reduction: \"boundary\" needs zero_optimization.stage 0 or 1, got {}, whose "
                    "gradients are partitioned: each micro-step must be reduced",
                    stage));
  }
}

TEST(Config, effective_configuration_parses_back_and_names_origins) {
  const Config c = with(
      R"("zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "s"}},
    "scheduler": {"type": "WarmupLR"}, "optimizer": {"params": {"lr": 0.01}}, "memory_budget": {"host": "1KiB"})",
      2);
  const Json effective = c.effective();
  const Json& values = effective.at("config");
  EXPECT_EQ(parse_config(values, 2).effective().at("config").dump(), values.dump());
  const Json& origins = effective.at("origins");
  EXPECT_EQ(origins.at("zero_optimization.stage").string(), "config");
  EXPECT_EQ(origins.at("train_batch_size").string(), "derived");
  EXPECT_EQ(values.at("scheduler").at("params").find("warmup_max_lr"), nullptr)
      << "each group's own rate";
  EXPECT_EQ(origins.at("aio.queue_depth").string(), "default");
}

TEST(Config, sparse_gradients_is_a_switch_of_every_stage) {
  EXPECT_FALSE(with("\"steps_per_print\": 10").sparse_gradients);
  EXPECT_TRUE(with("\"sparse_gradients\": true").sparse_gradients);
  EXPECT_TRUE(
      with(R"("sparse_gradients": true, "zero_optimization": {"stage": 3})").sparse_gradients);
  EXPECT_EQ(refusal_with("\"sparse_gradients\": \"yes\""),
            "sparse_gradients: expected true or false, got \"yes\"");
}

TEST(Config, quantization_needs_its_stage_and_its_switch) {
  auto zero = [](const std::string& keys) { return "\"zero_optimization\": {" + keys + "}"; };
  const std::string weights = "\"zero_quantized_weights\": true",
                    gradients = "\"zero_quantized_gradients\": true";
  EXPECT_EQ(refusal_with(zero("\"stage\": 2, " + weights)),
            "zero_optimization.zero_quantized_weights true needs zero_optimization.stage 3, got 2");
  EXPECT_EQ(refusal_with(zero("\"stage\": 1, " + gradients)),
            "zero_optimization.zero_quantized_gradients true needs zero_optimization.stage 2 or 3, "
            "got 1");
  EXPECT_EQ(
      refusal_with(zero("\"stage\": 2, " + gradients + ", \"zero_quantized_gradients_bits\": 6")),
      "zero_optimization.zero_quantized_gradients_bits: must be 4 or 8, got 6");
  EXPECT_EQ(refusal_with(zero("\"stage\": 2, \"zeropp_loco_param\": {\"err_beta\": 0.8}")),
            "zero_optimization.zeropp_loco_param.err_beta: needs "
            "zero_optimization.zero_quantized_gradients true, "
            "got false");
  const std::string loco = ", \"zeropp_loco_param\": {\"err_beta\": ";
  EXPECT_NE(refusal_with(zero("\"stage\": 2, " + gradients + loco + "1}")), "");
  EXPECT_NE(
      refusal_with(zero("\"stage\": 2, " + gradients + ", \"zeropp_loco_param\": {\"beta\": 0.8}")),
      "");

  const Config off = with(zero("\"stage\": 3, " + gradients + ", " + weights));
  EXPECT_TRUE(off.zero.quantized_weights && off.zero.quantized_gradients &&
              !off.zero.error_feedback);
  EXPECT_EQ(off.zero.gradient_bits, 4);
  const Config on = with(zero("\"stage\": 3, " + gradients + loco + "0.5}"));
  EXPECT_TRUE(on.zero.error_feedback);
  EXPECT_EQ(on.zero.err_beta, 0.5);
  EXPECT_EQ(on.zero.err_reset, 1024);
  const Json values = on.effective().at("config");
  EXPECT_EQ(parse_config(values, 1).effective().at("config").dump(), values.dump());
}

}  // namespace
}  // namespace ds
