#include "core/config/config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "core/base/error.h"
#include "core/config/schema.h"

namespace ds {
namespace {

Json read_data(const std::string& name) {
  const std::string path = std::string(DS_SOURCE_DIR "/tests/data/") + name;
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return Json::parse(text.str(), path);
}

Config parse(const std::string& text, int world = 1) { return parse_config(Json::parse(text), world); }

// A document with the mandatory batch size and `rest`.
Config with(const std::string& rest, int world = 1) {
  return parse("{\"train_micro_batch_size_per_gpu\": 1, " + rest + "}", world);
}

// The message of the DS_ERROR_CONFIG that the document must raise; "" when it is accepted.
std::string refusal(const Json& document, int world = 1) {
  try {
    parse_config(document, world);
    return "";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_CONFIG) << e.what();
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
    return e.what();
  }
}

std::string refusal_with(const std::string& rest) {
  return refusal(Json::parse("{\"train_micro_batch_size_per_gpu\": 1, " + rest + "}"));
}

TEST(Config, batch_triangle_is_deepspeeds) {
  const Json data = read_data("batch_config.json");
  ASSERT_GT(data.at("triangle").array().size(), 20u);
  for (const Json& item : data.at("triangle").array()) {
    const int world = static_cast<int>(item.at("world").integer());
    const Json& result = item.at("result");
    SCOPED_TRACE(item.dump());
    if (result.find("error")) {
      EXPECT_NE(refusal(item.at("config"), world), "");
      continue;
    }
    const Config c = parse_config(item.at("config"), world);
    EXPECT_EQ(c.train_batch, result.at("train_batch_size").integer());
    EXPECT_EQ(c.micro_batch, result.at("train_micro_batch_size_per_gpu").integer());
    EXPECT_EQ(c.accumulation, result.at("gradient_accumulation_steps").integer());
  }
}

// Where DeepSpeed refuses, we refuse; where it accepts, we accept, or name what is unsupported by this
// version. The exceptions are decisions listed in docs/reference/deepspeed_compat.md.
TEST(Config, decisions_are_deepspeeds_or_listed) {
  const std::map<std::string, std::string> ours = {
      {"{\"bogus_top_level_key\":1}", "bogus_top_level_key: unknown key"},
      {"{\"zero_optimization\":{\"stage\":\"2\"}}", "zero_optimization.stage: expected an integer"},
      {"{\"zero_optimization\":{\"stage\":true}}", "zero_optimization.stage: expected an integer"},
      {"{\"gradient_clipping\":-1.0}", "gradient_clipping: -1 is below 0"},
      {"{\"zero_optimization\":{\"stage\":2,\"offload_optimizer\":{\"device\":\"nvme\"}}}",
       "zero_optimization.offload_optimizer.nvme_path: missing"},
      {"{\"optimizer\":{\"type\":\"Adam\",\"params\":{\"lr\":0.001,\"max_grad_norm\":1.0}}}",
       "optimizer.params.max_grad_norm: no optimizer parameter"},
      {"{\"scheduler\":{\"type\":\"NoSuchLR\"}}", "scheduler.type: \"NoSuchLR\" is unknown"},
      {"{\"aio\":{\"block_size\":4096,\"bogus\":1}}", "aio.bogus: unknown key"},
      {"{\"steps_per_print\":\"ten\"}", "steps_per_print: expected an integer"},
  };
  // Refused by DeepSpeed because the feature was removed, because of what it implies there, or by a looser
  // check.
  const std::vector<std::string> accepted_here = {"elasticity",
                                                  "curriculum_learning",
                                                  "amp",
                                                  "sparse_gradients",
                                                  "nebula",
                                                  "progressive_layer_drop",
                                                  "graph_harvesting",
                                                  "tag_validation",
                                                  "parallel_write",
                                                  "hybrid_engine",
                                                  "loss_scale",
                                                  "\"fp16\"",
                                                  "allgather_bucket_size",
                                                  "mics_shard_size"};
  size_t agreed = 0;
  const Json data = read_data("batch_config.json");
  for (const Json& item : data.at("fragments").array()) {
    Json rest = Json::Object{};
    for (const auto& [key, value] : item.at("config").object()) {
      if (key != "train_micro_batch_size_per_gpu") rest.set(key, value);
    }
    SCOPED_TRACE(rest.dump());
    const std::string message = refusal(item.at("config"));
    const auto decided = std::find_if(ours.begin(), ours.end(), [&](const auto& one) {
      return Json::parse(one.first).dump() == rest.dump();
    });
    if (decided != ours.end()) {
      EXPECT_EQ(message.substr(0, decided->second.size()), decided->second);
    } else if (item.at("accepted").boolean()) {
      EXPECT_TRUE(message.empty() || message.find("unsupported by this version") != std::string::npos)
          << message;
    } else if (message.empty()) {
      bool listed = false;
      for (const std::string& word : accepted_here)
        listed = listed || rest.dump().find(word) != std::string::npos;
      EXPECT_TRUE(listed) << "accepted, but DeepSpeed refuses it";
    }
    agreed += item.at("accepted").boolean() == message.empty();
  }
  EXPECT_GT(agreed, 55u);
}

TEST(Config, learning_rates_are_deepspeeds) {
  const Json data = read_data("lr_schedules.json");
  ASSERT_GE(data.at("runs").array().size(), 8u);
  for (const Json& run : data.at("runs").array()) {
    Json document = Json::parse("{\"train_batch_size\": 1, \"optimizer\": {\"type\": \"Adam\"}}");
    Json scheduler = Json::Object{};
    scheduler.set("type", run.at("scheduler"));
    scheduler.set("params", run.at("params"));
    document.set("scheduler", scheduler);
    Config config = parse_config(document, 1);
    config.optimizer.lr = run.at("group_lr").array()[0].number();
    if (!config.scheduler.warmup_max_given) config.scheduler.warmup_max_lr = config.optimizer.lr;
    const Json::Array& rates = run.at("lr").array()[0].array();
    ASSERT_GT(rates.size(), 30u);
    for (size_t k = 0; k < rates.size(); ++k) {
      const double expected = rates[k].number();
      EXPECT_NEAR(learning_rate(config, config.optimizer.lr, static_cast<int64_t>(k)), expected,
                  1e-12 * std::abs(expected) + 1e-15)
          << run.at("scheduler").string() << " " << run.at("params").dump() << " step " << k;
    }
  }
}

TEST(Config, refused_schedules) {
  const Json data = read_data("lr_schedules.json");
  for (const Json& item : data.at("errors").array()) {
    Json document = Json::parse("{\"train_batch_size\": 1}");
    Json scheduler = Json::Object{};
    scheduler.set("type", item.at("scheduler"));
    scheduler.set("params", item.at("params"));
    document.set("scheduler", scheduler);
    EXPECT_NE(refusal(document).find("scheduler.params."), std::string::npos) << item.dump();
  }
  EXPECT_EQ(refusal_with("\"scheduler\": {\"type\": \"WarmupCosineLR\"}"),
            "scheduler.params.total_num_steps: missing; WarmupCosineLR needs it");
  EXPECT_EQ(refusal_with("\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"total_num_steps\": 9}}"),
            "scheduler.params.total_num_steps: no parameter of scheduler.type \"WarmupLR\"");
}

TEST(Config, misspelt_keys_get_a_suggestion) {
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"stag\": 1}"),
            "zero_optimization.stag: unknown key; did you mean zero_optimization.stage?");
  EXPECT_EQ(refusal_with("\"stage\": 1"), "stage: unknown key; did you mean zero_optimization.stage?");
  EXPECT_EQ(refusal_with("\"gradient_cliping\": 1"),
            "gradient_cliping: unknown key; did you mean gradient_clipping?");
  EXPECT_EQ(refusal_with("\"zero_optimisation\": {}"),
            "zero_optimisation: unknown key; did you mean zero_optimization?");
  EXPECT_EQ(refusal_with("\"fp16\": {\"los_scale\": 1}"),
            "fp16.los_scale: unknown key; did you mean fp16.loss_scale?");
  EXPECT_EQ(refusal_with("\"zzz\": 1"), "zzz: unknown key");
  // Compared letter by letter with every key this one would take seconds, and one of 30 MB minutes.
  std::string huge(1'000'000, 'A');
  EXPECT_NE(refusal_with("\"" + huge + "\": 1").find("unknown key"), std::string::npos);
}

TEST(Config, kinds_and_ranges_name_the_path_and_the_value) {
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"stage\": 4}"), "zero_optimization.stage: 4 is above 3");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"reduce_bucket_size\": 1.5}"),
            "zero_optimization.reduce_bucket_size: expected an integer, got 1.5");
  EXPECT_EQ(refusal_with("\"zero_optimization\": 2"), "zero_optimization: expected a section, got 2");
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"offload_param\": {\"device\": \"gpu\"}}"),
            "zero_optimization.offload_param.device: expected \"none\", \"cpu\" or \"nvme\", got \"gpu\"");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"params\": {\"lr\": \"auto\"}}"),
            "optimizer.params.lr: expected a number, got \"auto\" (a host framework fills \"auto\" in; here "
            "a value "
            "is needed)");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"params\": {\"betas\": [0.9]}}"),
            "optimizer.params.betas: expected two numbers, got [0.9]");
  EXPECT_EQ(refusal_with("\"memory_budget\": {\"host\": \"2 gigs\"}"),
            "memory_budget.host: expected bytes as an integer or as text like \"2GiB\", got \"2 gigs\"");
}

TEST(Config, optimizers_take_their_own_parameters_only) {
  const Config c = with(
      "\"optimizer\": {\"type\": \"sgd\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9, \"nesterov\": true, "
      "\"weight_decay\": 0.01, \"dampening\": 0}}");
  EXPECT_EQ(c.optimizer.type, "SGD");
  EXPECT_EQ(c.optimizer.momentum, 0.9);
  EXPECT_TRUE(c.optimizer.nesterov);
  EXPECT_EQ(c.optimizer.weight_decay, 0.01);
  EXPECT_EQ(refusal_with("\"optimizer\": {\"type\": \"SGD\", \"params\": {\"betas\": [0.9, 0.95]}}"),
            "optimizer.params.betas: no parameter of optimizer.type \"SGD\"");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"params\": {\"momentum\": 0.9}}"),
            "optimizer.params.momentum: no parameter of optimizer.type \"AdamW\"");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"type\": \"SGD\", \"params\": {\"nesterov\": true}}"),
            "optimizer.params.nesterov: true needs momentum above 0, got 0");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"type\": \"SGD\", \"params\": {\"dampening\": 0.1}}"),
            "optimizer.params.dampening: 0.1 is unsupported by this version; supported: 0.0");
}

TEST(Config, unsupported_features_are_refused_by_path_and_their_defaults_accepted) {
  EXPECT_EQ(refusal_with("\"fp16\": {\"enabled\": true}"),
            "fp16.enabled: true is unsupported by this version");
  EXPECT_EQ(refusal_with("\"fp16\": {\"enabled\": false, \"loss_scale\": 0}"), "");
  EXPECT_EQ(refusal_with("\"optimizer\": {\"type\": \"Lamb\"}"),
            "optimizer.type: Lamb is unsupported by this version; supported: Adam, AdamW, SGD, OneBitAdam");
  EXPECT_EQ(refusal_with("\"prescale_gradients\": true"),
            "prescale_gradients: true is unsupported by this version; supported: false");
  EXPECT_EQ(refusal_with("\"prescale_gradients\": false"), "");
  EXPECT_EQ(refusal_with("\"tensor_parallel\": {\"autotp_size\": 2}"),
            "tensor_parallel: unsupported by this version; leave it out");
  EXPECT_EQ(refusal_with("\"reduction\": \"vendor\""),
            "reduction: vendor is unsupported by this version; supported: micro, tree");
}

TEST(Config, a_device_is_named) {
  EXPECT_EQ(with("\"steps_per_print\": 1").device, "cpu");
  EXPECT_EQ(with(R"("device": "separate")").device, "separate");
  EXPECT_EQ(with(R"("device": "CPU")").device, "cpu");
  EXPECT_EQ(refusal_with(R"("device": "cuda:1")"),
            "device: \"cuda:1\" needs a CUDA plugin, which this version lacks; supported: cpu, separate");
  EXPECT_EQ(refusal_with(R"("device": "gpu")"), "device: \"gpu\" is unknown; supported: cpu, separate");
  EXPECT_NE(refusal_with(R"("device": 3)"), "");
  const Config c = with(R"("device": "separate")");
  EXPECT_EQ(c.effective().at("config").at("device").string(), "separate");
  EXPECT_EQ(c.shared_text(), with(R"("device": "cpu")").shared_text())
      << "ranks may run on different devices";
}

TEST(Config, names_old_and_new) {
  EXPECT_EQ(with("\"zero_optimization\": {\"prefetch_bucket_size\": 10}").zero.prefetch_bucket_size, 10);
  EXPECT_EQ(with("\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 1e7}").zero.prefetch_bucket_size,
            10000000);
  EXPECT_EQ(refusal_with(
                "\"zero_optimization\": {\"prefetch_bucket_size\": 1, \"stage3_prefetch_bucket_size\": 1}"),
            "zero_optimization.prefetch_bucket_size and zero_optimization.stage3_prefetch_bucket_size are "
            "two names of "
            "one key; give one");
  EXPECT_EQ(with("\"zero_optimization\": {\"cpu_offload\": true}").zero.optimizer_tier, Tier::host);
  EXPECT_EQ(with("\"zero_optimization\": {\"cpu_offload\": false}").zero.optimizer_tier, Tier::device);
  EXPECT_NE(
      refusal_with(
          "\"zero_optimization\": {\"cpu_offload\": true, \"offload_optimizer\": {\"device\": \"cpu\"}}"),
      "");
  EXPECT_EQ(with("\"zero_optimization\": true").zero.stage, 1);
  EXPECT_EQ(with("\"bfloat16\": {\"enabled\": true}").compute, DS_DTYPE_BF16);
  EXPECT_EQ(with("\"zero_optimization\": {\"reduce_bucket_size\": \"auto\"}").zero.reduce_bucket_size,
            500000000);
  EXPECT_TRUE(with("\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": null}").zero.overlap_comm);
}

TEST(Config, optimizer_and_defaults) {
  const Config c =
      with("\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 3e-4, \"betas\": [0.8, 0.95]}}");
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
  EXPECT_EQ(
      with("\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"torch_adam\": true}}").optimizer.weight_decay,
      0.01);
  EXPECT_EQ(refusal_with("\"optimizer\": {\"params\": {\"max_grad_norm\": 1}}"),
            "optimizer.params.max_grad_norm: no optimizer parameter; use gradient_clipping");
}

TEST(Config, offload_takes_every_stage_and_one_folder) {
  for (int stage = 0; stage < 4; ++stage) {
    const Config c = with(
        "\"zero_optimization\": {\"stage\": " + std::to_string(stage) +
        ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"scratch\", \"buffer_count\": 3},"
        " \"offload_param\": {\"device\": \"cpu\", \"buffer_count\": 9}}");
    EXPECT_EQ(c.zero.optimizer_tier, Tier::nvme);
    EXPECT_EQ(c.zero.param_tier, Tier::host);
    EXPECT_EQ(c.zero.nvme_path, "scratch");
    EXPECT_EQ(c.zero.buffer_count, 3);
  }
  EXPECT_EQ(refusal_with("\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\"}}"),
            "zero_optimization.offload_optimizer.nvme_path: missing; device is \"nvme\"");
  EXPECT_EQ(
      refusal_with("\"zero_optimization\": {\"offload_optimizer\": {\"nvme_path\": \"a\"}, "
                   "\"offload_param\": {\"nvme_path\": \"b\"}}"),
      "zero_optimization.offload_param.nvme_path: \"b\" differs from \"a\" of the other offload section; one "
      "folder is used");
}

TEST(Config, own_keys) {
  const Config c =
      with(R"("memory_budget": {"device": "2GiB", "host": 1000, "nvme": "1.5 MB"}, "emulate_tiers": true,
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
      refusal_with(R"("model": {"family": "gpt", "layers": 2, "hidden": 8, "heads": 4, "positions": 64})"),
      "run.sequence 128 is above model.positions 64");
}

TEST(Config, sizes_that_overflow_are_refused_by_key_value_and_limit) {
  const std::string model = R"("model": {"family": "gpt", "layers": 2, "hidden": 8, "heads": 2)";
  const std::map<std::string, std::string> refused = {
      {R"("gradient_accumulation_steps": 65537)", "gradient_accumulation_steps: 65537 is above 65536"},
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
      {R"("optimizer": {"params": {"betas": [0.9, 1]}})", "optimizer.params.betas[1]: 1 is not below 1"},
      {R"("optimizer": {"params": {"betas": [1.0, 0.9]}})", "optimizer.params.betas[0]: 1 is not below 1"},
      {R"("zero_optimization": {"sub_group_size": 1e16})",
       "zero_optimization.sub_group_size: 1e+16 is above 1000000000000000"},
      {model + R"(}, "gradient_accumulation_steps": 65536, "run": {"sequence": 32768})",
       "train_micro_batch_size_per_gpu 1 * gradient_accumulation_steps 65536 * run.sequence 32768 = "
       "2147483648 "
       "tokens of a rank's step is above 2147483647"},
      {R"("model": {"family": "gpt", "layers": 1000, "hidden": 1048576, "heads": 2})",
       "model.layers 1000 * model.hidden 1048576 * model.hidden 1048576 = 1099511627776000 weights is "
       "above "
       "8796093022208"},
      {model + R"(, "vocab": 2147483647}, "run": {"sequence": 1048576})",
       "train_micro_batch_size_per_gpu 1 * run.sequence 1048576 * model.vocab 2147483647 = 2251799812636672 "
       "values "
       "is above 1125899906842624"},
  };
  for (const auto& [rest, message] : refused) EXPECT_EQ(refusal_with(rest), message) << rest;
  EXPECT_EQ(refusal(Json::parse(R"({"train_batch_size": 2147483648})")),
            "train_batch_size: 2147483648 is above 2147483647");
  EXPECT_EQ(refusal(Json::parse(R"({"train_micro_batch_size_per_gpu": 2147483647})"), 2),
            "train_batch_size: 4294967294 is above 2147483647");
  EXPECT_EQ(refusal(Json::parse(R"({"train_batch_size": 131074, "train_micro_batch_size_per_gpu": 1})"), 2),
            "train_batch_size 131074 / train_micro_batch_size_per_gpu 1 / world size 2 makes "
            "gradient_accumulation_steps 65537, above 65536");
  EXPECT_EQ(refusal(Json::parse(R"({"train_batch_size": 65536, "train_micro_batch_size_per_gpu": 1})")), "");
  EXPECT_EQ(refusal_with(model + R"(, "vocab": 250000}, "run": {"sequence": 1048576})"), "");
}

TEST(Config, reproducible_means_tree) {
  const Config c = with("\"reproducible\": true, \"gradient_accumulation_steps\": 2", 2);
  EXPECT_EQ(c.reduction, "tree");
  EXPECT_EQ(refusal(Json::parse(R"({"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 3,
                                    "reproducible": true})"),
                    2),
            "reproducible: gradient_accumulation_steps 3 * world size 2 = 6 leaves is no power of two");
  EXPECT_EQ(refusal_with("\"reproducible\": true, \"reduction\": \"micro\""),
            "reduction: \"micro\" contradicts reproducible: true, which needs \"tree\"");
}

TEST(Config, effective_configuration_parses_back_and_names_origins) {
  const Config c =
      with(R"("zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "s"}},
    "scheduler": {"type": "WarmupLR"}, "optimizer": {"params": {"lr": 0.01}}, "memory_budget": {"host": "1KiB"})",
           2);
  const Json effective = c.effective();
  const Json& values = effective.at("config");
  EXPECT_EQ(parse_config(values, 2).effective().at("config").dump(), values.dump());
  const Json& origins = effective.at("origins");
  EXPECT_EQ(origins.at("zero_optimization.stage").string(), "config");
  EXPECT_EQ(origins.at("train_batch_size").string(), "derived");
  EXPECT_EQ(origins.at("scheduler.params.warmup_max_lr").string(), "derived");
  EXPECT_EQ(values.at("scheduler").at("params").at("warmup_max_lr").number(), 0.01);
  EXPECT_EQ(origins.at("aio.queue_depth").string(), "default");
}

TEST(Config, sparse_gradients_is_a_switch_of_every_stage) {
  EXPECT_FALSE(with("\"steps_per_print\": 10").sparse_gradients);
  EXPECT_TRUE(with("\"sparse_gradients\": true").sparse_gradients);
  EXPECT_TRUE(with(R"("sparse_gradients": true, "zero_optimization": {"stage": 3})").sparse_gradients);
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
            "zero_optimization.zero_quantized_gradients true needs zero_optimization.stage 2 or 3, got 1");
  EXPECT_EQ(refusal_with(zero("\"stage\": 2, " + gradients + ", \"zero_quantized_gradients_bits\": 6")),
            "zero_optimization.zero_quantized_gradients_bits: must be 4 or 8, got 6");
  EXPECT_EQ(
      refusal_with(zero("\"stage\": 2, \"zeropp_loco_param\": {\"err_beta\": 0.8}")),
      "zero_optimization.zeropp_loco_param.err_beta: needs zero_optimization.zero_quantized_gradients true, "
      "got false");
  const std::string loco = ", \"zeropp_loco_param\": {\"err_beta\": ";
  EXPECT_NE(refusal_with(zero("\"stage\": 2, " + gradients + loco + "1}")), "");
  EXPECT_NE(refusal_with(zero("\"stage\": 2, " + gradients + ", \"zeropp_loco_param\": {\"beta\": 0.8}")),
            "");

  const Config off = with(zero("\"stage\": 3, " + gradients + ", " + weights));
  EXPECT_TRUE(off.zero.quantized_weights && off.zero.quantized_gradients && !off.zero.error_feedback);
  EXPECT_EQ(off.zero.gradient_bits, 4);
  const Config on = with(zero("\"stage\": 3, " + gradients + loco + "0.5}"));
  EXPECT_TRUE(on.zero.error_feedback);
  EXPECT_EQ(on.zero.err_beta, 0.5);
  EXPECT_EQ(on.zero.err_reset, 1024);
  const Json values = on.effective().at("config");
  EXPECT_EQ(parse_config(values, 1).effective().at("config").dump(), values.dump());
}

// Every key stands in docs/reference/config.md, in backquotes.
TEST(Config, every_key_is_documented) {
  std::ifstream file(DS_SOURCE_DIR "/docs/reference/config.md");
  std::stringstream text;
  text << file.rdbuf();
  for (const Key& key : config_keys()) {
    EXPECT_NE(text.str().find("`" + key.path + "`"), std::string::npos) << key.path;
  }
  for (const ForeignKey& key : foreign_keys()) {
    const std::string name = key.path.substr(key.path.rfind('.') + 1);
    EXPECT_NE(text.str().find("`" + name + "`"), std::string::npos) << key.path;
  }
}

}  // namespace
}  // namespace ds
