// One cause gives one refusal, no matter what else depends on the key. Also tests cases that random
// use has found.
#include "core/config/refusals.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/parse_config.h"
#include "core/config/schema.h"
#include "zero/rank_counts.h"

namespace ds {
namespace {

// Returns all refusals of a document.
std::vector<std::string> refusals_of(const Json& document, int world = 1) {
  ConfigRefusals refusals;
  const Config config = parse_config(document, world, refusals);
  if (world > 1) check_rank_counts(config, world, refusals);
  std::vector<std::string> out;
  for (const Error& error : refusals.errors) out.emplace_back(error.what());
  return out;
}

std::vector<std::string> refusals_of(const std::string& text, int world = 1) {
  return refusals_of(Json::parse(text), world);
}

std::string eight_and(const std::string& rest) { return "{\"train_batch_size\": 8, " + rest + "}"; }

Config config_of(const std::string& rest, int world = 1) {
  return parse_config(Json::parse(eight_and(rest)), world);
}

void expect_one(const std::string& text, const std::string& words, int world = 1) {
  const std::vector<std::string> found = refusals_of(text, world);
  ASSERT_EQ(found.size(), 1u) << text << "\n" << testing::PrintToString(found);
  EXPECT_NE(found[0].find(words), std::string::npos) << found[0] << "\nhas no: " << words;
}

using Build = std::function<Json(const Json&)>;

// Returns `section` with the member `name` replaced by a member `as` with `value`.
Json replaced(const Json& section, const std::string& name, const std::string& as,
              const Json& value) {
  Json out = Json::Object{};
  for (const auto& [other, kept] : section.object()) {
    if (other == name) {
      out.set(as, value);
    } else {
      out.set(other, kept);
    }
  }
  return out;
}

// Makes one mistake at a time in a section and its subsections, each of which must give one
// refusal. Returns the number of mistakes. `whole` puts a section into its document.
int expect_a_line_a_mistake(const Json& section, const Build& whole) {
  const Json wrong = Json::Array{Json(1), Json("x")};
  int mistakes = 0;
  for (const auto& [name, value] : section.object()) {
    for (const Json& changed : {whole(replaced(section, name, name + "x", value)),
                                whole(replaced(section, name, name, wrong))}) {
      const std::vector<std::string> found = refusals_of(changed);
      EXPECT_EQ(found.size(), 1u) << name << " in " << changed.dump() << "\n"
                                  << testing::PrintToString(found);
      ++mistakes;
    }
    if (!value.is_object()) continue;
    mistakes += expect_a_line_a_mistake(value, [&, name = name](const Json& inside) {
      return whole(replaced(section, name, name, inside));
    });
  }
  return mistakes;
}

// A value of the wrong kind or an extra letter in a key gives one refusal, although other checks
// need the value.
TEST(Refusals, OneMistakeGivesOneRefusal) {
  const std::vector<std::string> busy = {
      R"("reproducible": true, "reduction": "tree")",
      R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})",
      R"("zero_optimization": {"stage": 3, "zero_quantized_weights": true, "zero_quantized_gradients": true,
          "zeropp_loco_param": {"err_beta": 0.5}, "offload_param": {"device": "cpu"}})",
      R"("optimizer": {"type": "SGD", "params": {"momentum": 0.5, "nesterov": true}},
          "scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_num_steps": 2}})",
      R"("curriculum_learning": {"enabled": true, "min_difficulty": 8, "max_difficulty": 64, "curriculum_type": "seqlen",
          "schedule_type": "fixed_linear", "schedule_config": {"total_curriculum_step": 9, "difficulty_step": 8}})",
      R"("fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 5})"};
  int mistakes = 0;
  for (const std::string& base : busy) {
    const Json document = Json::parse(eight_and(base));
    ASSERT_EQ(refusals_of(document), std::vector<std::string>()) << base;
    mistakes += expect_a_line_a_mistake(document, [](const Json& whole) { return whole; });
  }
  EXPECT_GT(mistakes, 70);
}

// A message that merely contains the word "device" must not suppress a refusal of the key "device".
TEST(Refusals, ARefusalWithAnotherCauseIsReportedToo) {
  const std::vector<std::string> found = refusals_of(eight_and(
      R"("device": 3, "zero_optimization": {"offload_optimizer": {"device": "nvme"}}, "steps_per_print": 0)"));
  EXPECT_EQ(found.size(), 3u) << testing::PrintToString(found);
}

// Both mistakes are reported, although one resembles the other or names its key.
TEST(Refusals, TwoMistakesGiveTwoRefusals) {
  for (
      const char* text :
      {R"("zero_optimisation": {}, "zero_optimization": {"stage": 9})",
       R"("zero_optimization": {"stage": 9}, "zero_optimisation": {})",
       R"("zero_optimization": {"stage": 9}, "zero_optimization.stage": 3)",
       R"("zero_optimization.stage": 3, "zero_optimization": {"stage": 9})",
       R"("zero_optimization": {"stagee": 3, "stagge": 2})",
       R"("optimizer": {"type": "Adam", "params": {"lrr": 1}}, "gradient_allreduce_op": "sum")",
       R"("bf16": {"enabledd": true}, "data_types": {"buffer_dtype": "bf16"})",
       R"("curriculum_learning": {"enabled": true, "min_difficulty": 8, "max_difficulty": 64, "schedule_type": "x",
            "curriculum_type": "seqlen", "schedule_config": {"total_curriculum_step": -5}})"}) {
    const std::vector<std::string> found = refusals_of(eight_and(text));
    EXPECT_EQ(found.size(), 2u) << text << "\n" << testing::PrintToString(found);
  }
}

TEST(Refusals, NamesWithDotsAreNotSections) {
  EXPECT_TRUE(refusals_of(eight_and(R"("zero_optimization.stage": null)")).empty());
  expect_one(eight_and(R"("optimizer": {"type": "SGD", "params": "auto"})"),
             "optimizer.params: expected a section");

  expect_one(eight_and(R"("zero_optimization.stage": 3)"),
             "\"zero_optimization.stage\" is one name");
  expect_one(eight_and(R"("zero_optimization": {"stage": 2, "offload_optimizer.device": "cpu"})"),
             "zero_optimization.offload_optimizer.device: unknown key");
  expect_one(eight_and(R"("zero_optimization.offload_optimizer": {"device": "cpu"})"),
             "is one name");
  expect_one(eight_and(R"("bf16.enabledd": true)"), "unknown key");
  EXPECT_EQ(config_of(R"("my.own": 3)").warnings.size(), 1u);
}

// Compiling a plan for this number of ranks would fail.
TEST(Refusals, ShardGroupsMustFitTheRanks) {
  expect_one(eight_and(R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 3})"),
             "must divide the number of ranks, got 3 and 4", 4);
  expect_one(eight_and(R"("zero_optimization": {"stage": 3, "mics_shard_size": 8})"), "got 8 and 4",
             4);
  expect_one(eight_and(R"("zero_optimization": {"stage": 2, "mics_shard_size": 4})"),
             "mics_shard_size 4 needs zero_optimization.stage 3, got 2", 4);
  expect_one(eight_and(R"("topology": {"nodes": 3})"), "topology.nodes must divide", 4);
  EXPECT_TRUE(
      refusals_of(eight_and(R"("zero_optimization": {"stage": 3, "mics_shard_size": 2})"), 4)
          .empty());
  EXPECT_TRUE(
      refusals_of(eight_and(R"("zero_optimization": {"stage": 2, "zero_hpz_partition_size": 0})"),
                  4)
          .empty());
}

TEST(Refusals, LoggedOperationsAreCheckedWhenTheFileIsRead) {
  expect_one(
      eight_and(
          R"("comms_logger": {"enabled": true, "prof_all": false, "prof_ops": ["all_reduec"]})"),
      "'all_reduec' is not one of all_gather");
  EXPECT_TRUE(refusals_of(eight_and(R"("comms_logger": {"enabled": true, "prof_ops":
      ["isend", "recv", "irecv", "monitored_barrier", "inference_all_reduce", "all_gather_base"]})"))
                  .empty());
}

TEST(Refusals, KeysOfDeepSpeedWithoutEffectAreKnown) {
  const Config c =
      config_of(R"("disable_python_gc": true, "data_types": {"keep_in_fp32_modules": "auto"},
      "zero_optimization": {"parameter_alignment": true, "allgather_sequential": false, "offload_param": "auto"},
      "compile": {"autoep_non_moe": true},
      "tensor_parallel": {"vocab_parallel_lm_head": false, "replace_with_kernel_inject": false},
      "optimizer": {"type": "AdamW", "params": {"set_grad_none": true, "maximize": false}},
      "gradient_allreduce_op": "MEAN", "quantize_training": {"enabled": false}, "datastates_ckpt": false,
      "comms_logger": {"enabled": false, "verbose": true}, "steps_per_print": 1e20,
      "bfloat16": {"enabled": true, "bf16_master_weights_and_grads": true, "bf16_optimizer_states": true})");
  EXPECT_TRUE(c.warnings.empty()) << c.warnings[0];
  EXPECT_EQ(c.compute, DS_DTYPE_BF16);
  EXPECT_EQ(c.optimizer.masters, DS_DTYPE_BF16);
  expect_one(eight_and(R"("data_types": {"keep_in_fp32_modules": ["norm"]})"),
             "parameters have one type");
  expect_one(eight_and(R"("optimizer": {"type": "AdamW", "params": {"maximize": true}})"),
             "maximize: not a parameter of optimizer.type");
  expect_one(eight_and(R"("quantize_training": {"enabled": true})"), "quantize_training");
  expect_one(eight_and(R"("comms_logger": {"enabled": true, "verbose": true})"),
             "comms_logger.verbose");
}

TEST(Refusals, AQuotedDegreeIsADegree) {
  expect_one(eight_and(R"("tensor_parallel": {"autotp_size": "4"})"),
             "tensor_parallel.autotp_size");
  expect_one(eight_and(R"("tensor_parallel": {"tp": {"tp_size": "2"}})"),
             "tensor_parallel.tp.tp_size");
  expect_one(eight_and(R"("pipeline": {"stages": "2"})"), "pipeline.stages");
  EXPECT_TRUE(
      refusals_of(
          eight_and(R"("pipeline": {"stages": "auto"}, "tensor_parallel": {"autotp_size": "1"})"))
          .empty());
}

TEST(Refusals, ADerivedBatchSizeHasTheSameLimit) {
  expect_one(R"({"train_micro_batch_size_per_gpu": 1000000, "gradient_accumulation_steps": 65536})",
             "is above 2147483647", 2147483647);
  expect_one(
      R"({"train_micro_batch_size_per_gpu": 2147483647, "gradient_accumulation_steps": 65536})",
      "is above 2147483647", 1048576);
  EXPECT_EQ(
      parse_config(Json::parse(R"({"train_micro_batch_size_per_gpu": 1073741823})"), 2).train_batch,
      2147483646);
}

// If libds replaces a value that the document gives, its origin is not "config".
TEST(Refusals, ReplacedValuesHaveADerivedOrigin) {
  const Config adamw =
      config_of(R"("optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}})");
  EXPECT_TRUE(adamw.optimizer.adam_w_mode);
  EXPECT_EQ(adamw.origins.at("optimizer.params.adam_w_mode"), "derived");
  EXPECT_EQ(adamw.warnings.size(), 1u);
  const Config onebit = config_of(
      R"("optimizer": {"type": "OneBitAdam", "params": {"lr": 1e-3, "freeze_step": 5, "bias_correction": true}})");
  EXPECT_EQ(onebit.origins.at("optimizer.params.bias_correction"), "derived");
  const Config autocast = config_of(R"("torch_autocast": {"enabled": true, "dtype": "float16"},
      "fp16": {"loss_scale_window": 500})");
  EXPECT_EQ(autocast.origins.at("fp16.loss_scale_window"), "derived");
  expect_one(eight_and(R"("zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto",
      "prefetch_bucket_size": 1e7})"),
             "two names of one key");
  const Config muon =
      config_of(R"("optimizer": {"type": "Muon", "params": {"lr": 0.02, "torch_adam": true}})");
  EXPECT_EQ(muon.optimizer.weight_decay, 0);
}

// The folder of a section whose states stay in memory is not used.
TEST(Refusals, AnUnusedPathMayDiffer) {
  const Config c = config_of(
      R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "nvme_path": "/b"},
      "offload_param": {"device": "nvme", "nvme_path": "/a"}})");
  EXPECT_EQ(c.zero.nvme_path, "/a");
  expect_one(
      eight_and(
          R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/b"},
      "offload_param": {"device": "nvme", "nvme_path": "/a"}})"),
      "\"/a\" differs from \"/b\"");
}

TEST(Refusals, KeysOfParallelismSubsectionsAreKnown) {
  EXPECT_TRUE(
      refusals_of(eight_and(R"("tensor_parallel": {"tp": {"tp_size": 1, "tp_grain_size": 64}},
      "expert_parallel": {"enabled": false, "autoep_size": 1, "top_k": "auto"})"))
          .empty());
  expect_one(eight_and(R"("tensor_parallel": {"tp": {"tp_sizee": 1}})"),
             "tensor_parallel.tp.tp_sizee: unknown key; did you mean tensor_parallel.tp.tp_size?");
  expect_one(eight_and(R"("tensor_parallel": {"tp": 1})"),
             "tensor_parallel.tp: expected a section, got 1");
  expect_one(eight_and(R"("expert_parallel": {"enabled": false, "autoep_sise": 1})"),
             "did you mean expert_parallel.autoep_size?");
}

TEST(Refusals, ATypeOfParametersMustFitTheEnabledPrecision) {
  for (const char* text :
       {R"("data_types": {"param_dtype": "fp32"})",
        R"("bf16": {"enabled": true}, "data_types": {"param_dtype": "torch.bfloat16"})",
        R"("data_types": {"param_dtype": "half"}, "fp16": {"enabled": true})",
        R"("data_types": {"param_dtype": null})"})
    EXPECT_EQ(refusals_of(eight_and(text)), std::vector<std::string>()) << text;
  expect_one(eight_and(R"("fp16": {"enabled": true}, "data_types": {"param_dtype": "bf16"})"),
             R"(data_types.param_dtype: "bf16" differs from "fp16", the type that)");
  expect_one(eight_and(R"("data_types": {"param_dtype": "int8"})"),
             R"("int8" is unknown; supported: fp32)");
  expect_one(eight_and(R"("data_types": {"param_dtype": 16})"), "data_types.param_dtype: ");
}

TEST(Refusals, TypesOfGradientSumsHaveTorchsNamesToo) {
  EXPECT_EQ(
      config_of(R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bfloat16"})")
          .grad_accum,
      DS_DTYPE_BF16);
  EXPECT_EQ(config_of(R"("data_types": {"grad_accum_dtype": "torch.float32"})").grad_accum,
            DS_DTYPE_F32);
  expect_one(eight_and(R"("communication_data_type": "bfloat16")"), "communication_data_type");
}

TEST(Refusals, SuggestionsAreSimilarNames) {
  expect_one(eight_and(R"("zero_optimization": {"STAGE": 3})"),
             "did you mean zero_optimization.stage?");
  expect_one(eight_and(R"("optimizer": {"type": "Adam", "enabled": true})"),
             "optimizer.enabled: unknown key");
  EXPECT_EQ(refusals_of(eight_and(R"("optimizer": {"type": "Adam", "enabled": true})"))[0].find(
                "tensorboard"),
            std::string::npos);
}

}  // namespace
}  // namespace ds
