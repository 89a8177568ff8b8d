// Keys of precision, reduction, ZeRO and offload.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/config/config.h"
#include "core/config/describe.h"
#include "core/config/parse_config.h"
#include "support/parsed_config.h"

namespace ds {
namespace {

using test::refusal, test::refusal_with, test::with;

TEST(Config, PrecisionIsOneOfF32Bf16Fp16AndAutocast) {
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
              fmt::format("fp16.{}: must be above 0 for a dynamic scale (fp16.loss_scale 0), got 0",
                          name));
    EXPECT_EQ(refusal_with("\"fp16\": {\"enabled\": true, \"loss_scale\": 8, " + zero + "}"), "");
    EXPECT_EQ(refusal_with("\"fp16\": {\"enabled\": false, " + zero + "}"), "");
  }
  EXPECT_EQ(refusal_with("\"fp16\": {\"fp16_master_weights_and_grads\": true}"),
            "fp16.fp16_master_weights_and_grads: true is unsupported by this version; supported: "
            "false; master weights are f32");
  EXPECT_EQ(refusal_with("\"torch_autocast\": {\"enabled\": true, \"dtype\": \"float16\"}"), "");
  EXPECT_EQ(refusal_with("\"torch_autocast\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}"),
            "");
  EXPECT_EQ(refusal_with("\"torch_autocast\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}"),
            "torch_autocast.dtype: \"bfloat16\" excludes fp16.enabled: true, which gives "
            "parameters another type");
  for (const char* type : {"fp16", "bf16", "fp32"}) {
    EXPECT_EQ(refusal_with(fmt::format("\"communication_data_type\": \"{}\"", type)), "");
    EXPECT_EQ(refusal_with(fmt::format("\"data_types\": {{\"grad_accum_dtype\": \"{}\"}}", type)),
              "");
  }
  EXPECT_EQ(refusal_with("\"data_types\": {\"grad_accum_dtype\": null}"), "");
  EXPECT_EQ(
      refusal_with("\"data_types\": {\"grad_accum_dtype\": \"bf16\"}, \"reproducible\": true"),
      "data_types.grad_accum_dtype: \"bf16\" excludes reproducible: true, whose sums over "
      "micro-steps are the same for any number of ranks only in f32");
  EXPECT_EQ(
      refusal_with("\"data_types\": {\"grad_accum_dtype\": \"fp16\"}, \"optimizer\": {\"type\": "
                   "\"OneBitAdam\", \"params\": {\"lr\": 1}}"),
      "data_types.grad_accum_dtype: \"fp16\" excludes OneBitAdam, whose momentum needs sums in "
      "f32");
}

TEST(Config, OffloadWorksAtEveryStageWithOneFolder) {
  for (int stage = 0; stage < 4; ++stage) {
    const Config c = with(
        "\"zero_optimization\": {\"stage\": " + std::to_string(stage) +
        ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"scratch\", "
        "\"buffer_count\": 3}, \"offload_param\": {\"device\": \"cpu\", \"buffer_count\": 9}}");
    EXPECT_EQ(c.zero.optimizer_tier, Tier::nvme);
    EXPECT_EQ(c.zero.param_tier, Tier::host);
    EXPECT_EQ(c.zero.nvme_path, "scratch");
    EXPECT_EQ(c.zero.buffer_count, 3);
  }
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\"}}"),
            "zero_optimization.offload_optimizer.nvme_path: missing; device is \"nvme\"");
  EXPECT_EQ(
      refusal_with(
          "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": "
          "\"a\"}, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"b\"}}"),
      "zero_optimization.offload_param.nvme_path: \"b\" differs from \"a\" of the other "
      "offload section; one folder is used");
}

TEST(Config, SizesThatOverflowAreRefusedByKeyValueAndLimit) {
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
       "= 2147483648 tokens of a rank's step is above 2147483647"},
      {R"("model": {"family": "gpt", "layers": 1000, "hidden": 1048576, "heads": 2})",
       "model.layers 1000 * model.hidden 1048576 * model.hidden 1048576 = 1099511627776000 weights "
       "is above 8796093022208"},
      {model + R"(, "vocab": 2147483647}, "run": {"sequence": 1048576})",
       "train_micro_batch_size_per_gpu 1 * run.sequence 1048576 * model.vocab 2147483647 = "
       "2251799812636672 values is above 1125899906842624"},
  };
  // If a range has two limits, the message continues with the range.
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

TEST(Config, ReproducibleImpliesTheTree) {
  const Config c = with("\"reproducible\": true, \"gradient_accumulation_steps\": 2", 2);
  EXPECT_EQ(c.reduction, "tree");
  EXPECT_EQ(
      refusal(Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3,
                                    "reproducible": true})"),
              2),
      "reproducible: needs a power of two leaves, got gradient_accumulation_steps 3 * world size 2 "
      "= 6");
  EXPECT_EQ(refusal_with("\"reproducible\": true, \"reduction\": \"micro\""),
            "reduction: \"micro\" contradicts reproducible: true, which needs \"tree\"");
  EXPECT_EQ(refusal_with("\"reproducible\": true, \"reduction\": \"boundary\""),
            "reduction: \"boundary\" contradicts reproducible: true, which needs \"tree\"");
}

TEST(Config, ReductionAtTheBoundaryNeedsWholeGradients) {
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

TEST(Config, SparseGradientsWorkAtEveryStage) {
  EXPECT_FALSE(with("\"steps_per_print\": 10").sparse_gradients);
  EXPECT_TRUE(with("\"sparse_gradients\": true").sparse_gradients);
  EXPECT_TRUE(
      with(R"("sparse_gradients": true, "zero_optimization": {"stage": 3})").sparse_gradients);
  EXPECT_EQ(refusal_with("\"sparse_gradients\": \"yes\""),
            "sparse_gradients: expected true or false, got \"yes\"");
}

TEST(Config, QuantizationNeedsItsStageAndItsSwitch) {
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
            "zero_optimization.zero_quantized_gradients true, got false");
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
