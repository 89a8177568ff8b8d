#include "core/config/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "core/base/error.h"
#include "core/config/describe.h"
#include "core/config/parse_config.h"
#include "core/config/refusals.h"
#include "data/keys.h"
#include "optim/param_groups.h"
#include "support/parsed_config.h"

namespace ds {
namespace {

using test::parse, test::refusal, test::refusal_with, test::with;

TEST(Config, MisspeltKeysGetASuggestion) {
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
  // Comparing this name letter by letter with every key would take seconds, or minutes for a name
  // of 30 MB.
  std::string huge(1'000'000, 'A');
  EXPECT_NE(refusal_with("\"zero_optimization\": {\"" + huge + "\": 1}").find("unknown key"),
            std::string::npos);
  EXPECT_EQ(refusal_with("\"" + huge + "\": 1"), "");
}

// Names that other programs use for settings that affect training. If they were dropped with a
// warning, a run would differ from what its file says.
TEST(Config, CommonNamesOfOtherProgramsAreRefused) {
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
  // Paths of sections written as one name.
  for (const auto& [name, meant] : {std::pair{"zero.stage", "zero_optimization"},
                                    {"optim.lr", "optimizer"},
                                    {"trainer.max_steps", "run.steps"},
                                    {"hparams.learning_rate", "optimizer.params.lr"}}) {
    EXPECT_EQ(refusal_with("\"" + std::string(name) + "\": 1"),
              std::string(name) + ": unknown key; did you mean " + meant +
                  "? Write sections as nested objects");
  }
  EXPECT_EQ(refusal_with("\"tracker.url\": 1"), "");
  // Comments and keys that do not affect training are accepted.
  for (const char* name : {"_lr", "//zero", "#learning_rate", "output_dir", "project", "author"}) {
    EXPECT_EQ(refusal_with("\"" + std::string(name) + "\": 1"), "") << name;
  }
}

TEST(Config, UnknownTopLevelKeysAreWarnings) {
  for (const char* name :
       {"zzz", "_comment", "comms_config", "monitor_config", "cuda_visible_devices", "name"}) {
    const Config c = with(std::string("\"") + name + "\": {\"a\": 1}");
    EXPECT_EQ(c.warnings,
              std::vector<std::string>{std::string(name) + ": neither DeepSpeed nor libds reads "
                                                           "this key; it has no effect"});
  }
  EXPECT_TRUE(with("\"steps_per_print\": 1").warnings.empty());
}

TEST(Config, ASectionWithoutItsSwitchIsAWarning) {
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

TEST(Config, ATemplateWithoutBatchesHasAMicroBatchOf1) {
  const Config c = parse("{\"zero_optimization\": {\"stage\": 1}}", 3);
  EXPECT_EQ(c.train_batch, 3);
  EXPECT_EQ(c.warnings.size(), 1u);
  EXPECT_EQ(c.origins.at("train_micro_batch_size_per_gpu"), "derived");
  EXPECT_NE(refusal(Json::parse("{}")), "");
  EXPECT_NE(refusal(Json::parse("{\"gradient_accumulation_steps\": 2, \"zero_optimization\": {}}")),
            "");
}

TEST(Config, AllRefusalsAreReportedAtOnce) {
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

TEST(Config, WarnsIfReproducibleBitsStillDependOnTheRanks) {
  auto warnings = [](const std::string& more) {
    return parse_config(
               Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "reproducible": true, )" +
                           more + "}"),
               1)
        .warnings;
  };
  EXPECT_EQ(warnings(R"("gradient_compression": {"type": "int8"})"),
            std::vector<std::string>{
                "reproducible: bits still depend on the number of ranks, because with "
                "gradient_compression.type \"int8\" each rank rounds its own elements to codes"});
  for (const char* codes :
       {R"("zero_optimization": {"stage": 2, "zero_quantized_gradients": true})",
        R"("optimizer": {"type": "OneBitAdam"})"})
    EXPECT_EQ(warnings(codes).size(), 1u) << codes;
  EXPECT_TRUE(warnings(R"("communication_data_type": "bf16")").empty());
}

TEST(Config, WarnsOfAReportThatNoStepReaches) {
  const Config c =
      parse_config(Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "run": {"steps": 4},
                                                "flops_profiler": {"enabled": true, "profile_step": 99}})"),
                   1);
  EXPECT_EQ(c.warnings,
            std::vector<std::string>{
                "flops_profiler.profile_step: 99 is beyond run.steps 4: there will be no report"});
}

// "auto" has the values that Hugging Face's integration fills in with the defaults of
// TrainingArguments.
TEST(Config, AutoHasTheValuesOfTheTrainer) {
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
      "optimizer.params.momentum: Hugging Face's integration does not fill in a value for \"auto\" "
      "here; give one");
  EXPECT_NE(refusal_with("\"steps_per_print\": \"auto\""), "");
}

TEST(Config, KindsAndRangesNameThePathAndTheValue) {
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

// DeepSpeed's classes refuse such values as well.
TEST(Config, KeysWithoutEffectAreCheckedForTheirKind) {
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

TEST(Config, BooleansAreThoseThatDeepSpeedAccepts) {
  const auto overlaps = [](const std::string& value) {
    return with("\"zero_optimization\": {\"overlap_comm\": " + value + "}").zero.overlap_comm;
  };
  for (const char* yes : {"true", "1", "1.0", "\"true\"", "\"Yes\"", "\"on\"", "\"1\""})
    EXPECT_TRUE(overlaps(yes));
  for (const char* no : {"false", "0", "0.0", "\"False\"", "\"n\"", "\"off\"", "\"0\""})
    EXPECT_FALSE(overlaps(no));
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"overlap_comm\": 2}"),
            "zero_optimization.overlap_comm: expected true or false, got 2");
  // DeepSpeed treats any text there as true.
  EXPECT_EQ(refusal_with("\"wall_clock_breakdown\": \"false\""),
            "wall_clock_breakdown: expected true or false, got \"false\"");
  EXPECT_EQ(refusal_with("\"hybrid_engine\": {\"enabled\": \"off\"}"), "");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"legacy_stage1\": \"false\"}"), "");
  EXPECT_NE(refusal_with("\"sequence_parallel_size\": true"), "");
  EXPECT_EQ(with("\"data\": {\"packing\": 0}").get<DataKeys>().packing, "none");
}

TEST(Config, CpuCheckpointingHasNoEffectOnACpu) {
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

TEST(Config, UnsupportedFeaturesAreRefusedByPathAndTheirDefaultsAccepted) {
  EXPECT_EQ(refusal_with("\"amp\": {\"enabled\": true}"),
            "amp.enabled: true is unsupported by this version; libds does not include apex; use "
            "fp16.enabled or bf16.enabled");
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
            "unsupported by this version; libds compresses no models");
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

TEST(Config, DevicesAreChosenByName) {
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

TEST(Config, OldAndNewNamesAreAccepted) {
  EXPECT_EQ(with("\"zero_optimization\": {\"prefetch_bucket_size\": 10}").zero.prefetch_bucket_size,
            10);
  EXPECT_EQ(with("\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 1e7}")
                .zero.prefetch_bucket_size,
            10000000);
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"prefetch_bucket_size\": 1, "
                         "\"stage3_prefetch_bucket_size\": 1}"),
            "zero_optimization.prefetch_bucket_size and "
            "zero_optimization.stage3_prefetch_bucket_size are two names of one key; give one");
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

TEST(Config, KeysThatOnlyLibdsHasAreRead) {
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
  EXPECT_EQ(c.get<DataKeys>().paths, std::vector<std::string>{"corpus"});
  EXPECT_EQ(c.seed, 7u);
  EXPECT_EQ(refusal_with(R"("model": {"family": "gpt", "layers": 2, "hidden": 10, "heads": 4})"),
            "model.hidden 10 is not a multiple of model.heads 4");
  EXPECT_EQ(
      refusal_with(
          R"("model": {"family": "gpt", "layers": 2, "hidden": 8, "heads": 4, "positions": 64})"),
      "run.sequence 128 is above model.positions 64");
}

// An empty text is often a variable that is not set, so it does not mean that the key is absent.
TEST(Config, EmptyPathsAndNamesAreRefused) {
  for (const char* key : {"model.folder", "data.tokenizer", "data.chat_template", "run.dir",
                          "run.resume", "communicator"}) {
    const std::string path = key;
    const size_t dot = path.find('.');
    const std::string text =
        dot == path.npos
            ? fmt::format(R"("{}": "")", path)
            : fmt::format(R"("{}": {{"{}": ""}})", path.substr(0, dot), path.substr(dot + 1));
    EXPECT_EQ(refusal_with(text), path + ": must not be empty, got \"\"");
    EXPECT_EQ(with("\"steps_per_print\": 1")
                  .effective()
                  .at("config")
                  .dump()
                  .find("\"" + path.substr(dot + 1) + "\": \"\""),
              std::string::npos)
        << path;
  }
}

TEST(Config, EffectiveConfigurationParsesBackAndNamesOrigins) {
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

}  // namespace
}  // namespace ds
