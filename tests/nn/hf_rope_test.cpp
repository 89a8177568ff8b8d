// Tests rotary positions as config.json specifies them.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.h"
#include "core/base/json.h"
#include "nn/models/hf.h"
#include "support/errors.h"
#include "support/hf_config.h"

namespace ds::test {
namespace {

TEST(HfConfig, OldAndNewSpellingOfRopeAreEqual) {
  Json old = config_of("qwen2"), now = old;
  drop(now, "rope_theta");
  drop(now, "rope_scaling");
  drop(now, "torch_dtype");
  now.set("dtype", "float32");
  now.set("rope_parameters", Json::parse(R"({"rope_type": "default", "rope_theta": 1000000.0})"));
  EXPECT_EQ(hf_model(old, 32, 16).graph.print(), hf_model(now, 32, 16).graph.print());
  now.set("rope_parameters", Json::parse(R"({"rope_type": "default", "rope_theta": 10000.0})"));
  EXPECT_NE(hf_model(old, 32, 16).graph.print(), hf_model(now, 32, 16).graph.print());
}

TEST(HfConfig, ReadsRopeScalings) {
  Json scaling =
      Json::parse(R"({"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                                 "original_max_position_embeddings": 32})");
  std::string text = graph_of("qwen2", [&](Json& c) { c.set("rope_scaling", scaling); });
  expect_names(text, {"scaling=\"llama3\"", "factor=8.0", "low=1.0", "high=4.0", "original=32"});
  text = graph_of("llama", [](Json& c) {
    c.set("rope_parameters",
          Json::parse(
              R"({"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 16})"));
  });
  expect_names(text, {"scaling=\"yarn\"", "theta=500.0", "low=1.0", "high=16.0", "original=64"});
  EXPECT_EQ(graph_of("llama").find("scaling"), std::string::npos);
}

TEST(HfConfig, RefusalsOfRopesNameKeyAndValue) {
  auto rope = [](const char* text, ds_status status = DS_ERROR_UNSUPPORTED) {
    return refusal("llama", status, "rope_parameters", Json::parse(text));
  };
  expect_names(rope(R"({"rope_type": "proportional", "factor": 4.0})"),
               {"rope_parameters.rope_type", "'proportional'"});
  expect_names(rope(R"({"rope_type": "longrope", "short_factor": [1], "long_factor": [1]})",
                    DS_ERROR_INVALID_ARGUMENT),
               {"rope_parameters.short_factor", "got 1"});
  expect_names(rope(R"({"rope_type": "yarn", "factor": 4.0, "attention_factor": -3.0})",
                    DS_ERROR_INVALID_ARGUMENT),
               {"attention_factor", "-3"});
  expect_names(rope(R"({"partial_rotary_factor": 0.5})"),
               {"partial_rotary_factor", "llama", "0.5"});
  expect_names(
      rope(R"({"rope_type": "yarn", "factor": 4.0, "truncate": 3})", DS_ERROR_INVALID_ARGUMENT),
      {"truncate", "3"});
  expect_names(rope(R"({"full_attention": {"rope_theta": 100.0}})"), {"full_attention", "llama"});
  expect_names(rope(R"({"rope_type": "linear"})", DS_ERROR_INVALID_ARGUMENT),
               {"rope_parameters.factor"});
  expect_names(rope(R"({"rope_type": "linear", "factor": -1})", DS_ERROR_INVALID_ARGUMENT),
               {"factor", "-1"});
  expect_names(rope("3", DS_ERROR_INVALID_ARGUMENT), {"rope_parameters", "3"});
}

TEST(HfConfig, RopeScalingOverridesRopeParameters) {
  auto with = [](const char* now, const char* before) {
    return graph_of("llama", [&](Json& c) {
      c.set("rope_parameters", Json::parse(now));
      c.set("rope_scaling", Json::parse(before));
    });
  };
  const char *linear = R"({"type": "linear", "factor": 4.0})", *other = R"({"rope_theta": 50.0})";
  std::string both = with(other, linear);
  expect_names(both, {"scaling=\"linear\"", "theta=10000.0"});
  expect_names(with(other, "{}"), {"theta=50.0"});
}

TEST(HfConfig, ThetaWithoutAKeyIsTheDefaultOfTheFamily) {
  auto bare = [](Json& c) {
    drop(c, "rope_theta");
    drop(c, "rope_parameters");
    drop(c, "rope_scaling");
  };
  expect_names(graph_of("mixtral", bare), {"theta=1e+06"});
  expect_names(graph_of("qwen2", bare), {"theta=10000.0"});
}

TEST(HfConfig, YarnHasTheMagnitudeOfTransformers) {
  auto yarn = [](const char* more) {
    Json rope = Json::parse(fmt::format(
        R"({{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, {}}})",
        more));
    return graph_of("llama", [&](Json& c) { c.set("rope_parameters", rope); });
  };
  // The magnitude is (0.1 * 0.5 ln 4 + 1) / (0.1 * 2 ln 4 + 1).
  expect_names(yarn(R"("mscale": 0.5, "mscale_all_dim": 2)"), {"magnitude=0.83719"});
  expect_names(yarn(R"("attention_factor": 3.5, "mscale": 0.5, "mscale_all_dim": 2)"),
               {"magnitude=3.5"});
  EXPECT_EQ(yarn(R"("mscale": 0.5)").find("magnitude"), std::string::npos);
  expect_names(yarn(R"("truncate": false)"), {"truncate=0"});
  EXPECT_EQ(yarn(R"("truncate": true)").find("truncate"), std::string::npos);
}

TEST(HfConfig, LongropeAndDynamicLeaveTheLengthToTheGraph) {
  Json config = config_of("llama");
  int64_t pairs =
      config.at("hidden_size").integer() / config.at("num_attention_heads").integer() / 2;
  Json::Array brief(static_cast<size_t>(pairs), Json(1.5)),
      wide(static_cast<size_t>(pairs), Json(3.5));
  Json rope = Json::parse(R"({"rope_type": "longrope", "original_max_position_embeddings": 16})");
  rope.set("short_factor", brief);
  rope.set("long_factor", wide);
  config.set("rope_parameters", rope);
  config.set("max_position_embeddings", 64);
  // The magnitude is sqrt(1 + ln 4 / ln 16).
  expect_names(hf_model(config, 17, 17).graph.print(),
               {" factors=\"1.5 1.5", "long_factors=\"3.5 3.5", "original=16", "magnitude=1.22474",
                "seq=17"});

  config.set("rope_parameters", Json::parse(R"({"rope_type": "dynamic", "factor": 2.0})"));
  config.set("max_position_embeddings", 16);
  // For a text of 24 tokens, theta is multiplied by (2 * 24 / 16 - 1)^(dims / (dims - 2)).
  Attrs want{{"power", static_cast<double>(pairs) / static_cast<double>(pairs - 1)}};
  std::string text = hf_model(config, 24, 24).graph.print();
  expect_names(text, {"theta=10000.0", "scaling=\"dynamic\"", "factor=2.0", "original=16",
                      want.print().substr(1, want.print().size() - 2)});
}

// Files of Transformers 4.4x repeat rotary_pct and rotary_emb_base under other names, which
// Transformers 5 does not read.
TEST(HfConfig, NeoxReadsItsOwnNamesOfRope) {
  Json config = Json::parse(R"({"model_type": "gpt_neox", "vocab_size": 32, "hidden_size": 32,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "rotary_pct": 0.5,
    "rotary_emb_base": 500, "partial_rotary_factor": 0.5, "rope_theta": 500})");
  expect_names(hf_model(config, 16, 16).graph.print(), {"dims=8", "theta=500.0"});
  config.set("rope_theta", 600);
  config.set("partial_rotary_factor", 0.25);
  HfModel model = hf_model(config, 16, 16);
  expect_names(model.graph.print(), {"dims=8", "theta=500.0"});
  EXPECT_EQ(model.unread, (std::vector<std::string>{"partial_rotary_factor", "rope_theta"}));
}

// Three columns have the frequencies theta^(-2i/3) / factor_i, i < 2. These are the frequencies of
// four columns with theta^(4/3) in place of theta.
TEST(HfConfig, AnOddNumberOfColumnsHasAFactorForEachPair) {
  Json config = Json::parse(R"({"model_type": "gpt_neox", "vocab_size": 32, "hidden_size": 10,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "rotary_pct": 0.7,
    "rotary_emb_base": 1000, "max_position_embeddings": 64, "rope_scaling": {"rope_type": "longrope",
    "short_factor": [1, 1.5], "long_factor": [2, 3], "original_max_position_embeddings": 8}})");
  expect_names(hf_model(config, 16, 16).graph.print(),
               {"dims=4", "theta=9999.99999999", "factors=\"1 1.5\"", "long_factors=\"2 3\""});
  Json scaling = config.at("rope_scaling");
  scaling.set("short_factor", Json::Array{1});
  config.set("rope_scaling", scaling);
  expect_names(message_of([&] { hf_model(config, 16, 16); }, DS_ERROR_INVALID_ARGUMENT),
               {"rope_scaling.short_factor", "must have 2 numbers", "got 1"});
  config.set("rope_scaling", Json::parse(R"({"rope_type": "yarn", "factor": 2})"));
  expect_names(message_of([&] { hf_model(config, 16, 16); }, DS_ERROR_INVALID_ARGUMENT),
               {"rotary_pct", "even number of columns for yarn", "got 3"});
}

// For 5 columns, Transformers computes 3 frequencies theta^(-2i/5), which rotate 6 columns.
TEST(HfConfig, RopeSupportsAnOddNumberOfColumns) {
  Json config = config_of("phi3");
  for (const char* key : {"rope_scaling", "rope_parameters"}) drop(config, key);
  int64_t width = config.at("hidden_size").integer() / config.at("num_attention_heads").integer();
  config.set("partial_rotary_factor", 5.5 / static_cast<double>(width));
  config.set("rope_theta", 1000.0);
  Attrs want{{"theta", std::pow(1000.0, 6.0 / 5.0)}};
  expect_names(hf_model(config, 32, 16).graph.print(),
               {"dims=6", want.print().substr(1, want.print().size() - 2)});
}

}  // namespace
}  // namespace ds::test
