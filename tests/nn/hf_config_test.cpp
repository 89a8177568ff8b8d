#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file.h"
#include "nn/models/hf.h"
#include "support/errors.h"
#include "support/hf_golden.h"

namespace ds::test {
namespace {

Json config_of(const std::string& model) {
  return Json::parse(read_file(golden_path(model) + "/config.json"));
}

void drop(Json& config, std::string_view key) {
  std::erase_if(config.object(), [&](const auto& member) { return member.first == key; });
}

// The text of the graph that a changed configuration gives.
std::string graph_of(const std::string& model, const std::function<void(Json&)>& change = {}) {
  Json config = config_of(model);
  if (change) change(config);
  return hf_model(config, 32, 16).graph.print();
}

std::string refusal(const std::string& model, ds_status status, const std::string& key, const Json& value) {
  return message_of([&] { graph_of(model, [&](Json& c) { c.set(key, value); }); }, status);
}

TEST(HfConfig, OldAndNewSpellingOfRopeAreOne) {
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

TEST(HfConfig, RopeScalings) {
  Json scaling = Json::parse(R"({"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                                 "original_max_position_embeddings": 32})");
  std::string text = graph_of("qwen2", [&](Json& c) { c.set("rope_scaling", scaling); });
  expect_names(text, {"scaling=\"llama3\"", "factor=8.0", "low=1.0", "high=4.0", "original=32"});
  text = graph_of("llama", [](Json& c) {
    c.set("rope_parameters",
          Json::parse(R"({"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 16})"));
  });
  expect_names(text, {"scaling=\"yarn\"", "theta=500.0", "low=1.0", "high=16.0", "original=64"});
  EXPECT_EQ(graph_of("llama").find("scaling"), std::string::npos);
}

TEST(HfConfig, RefusesRopesByKeyAndValue) {
  auto rope = [](const char* text, ds_status status = DS_ERROR_UNSUPPORTED) {
    return refusal("llama", status, "rope_parameters", Json::parse(text));
  };
  expect_names(rope(R"({"rope_type": "proportional", "factor": 4.0})"),
               {"rope_parameters.rope_type", "'proportional'"});
  expect_names(rope(R"({"rope_type": "longrope", "short_factor": [1], "long_factor": [1]})",
                    DS_ERROR_INVALID_ARGUMENT),
               {"rope_parameters.short_factor", "got 1"});
  expect_names(rope(R"({"rope_type": "linear", "factor": 4.0, "short": [1]})"),
               {"rope_parameters.short", "[1]"});
  expect_names(
      rope(R"({"rope_type": "yarn", "factor": 4.0, "attention_factor": -3.0})", DS_ERROR_INVALID_ARGUMENT),
      {"attention_factor", "-3"});
  expect_names(rope(R"({"partial_rotary_factor": 0.5})"), {"partial_rotary_factor", "llama", "0.5"});
  expect_names(rope(R"({"rope_type": "yarn", "factor": 4.0, "truncate": false})"), {"truncate", "false"});
  expect_names(rope(R"({"rope_type": "linear"})", DS_ERROR_INVALID_ARGUMENT), {"rope_parameters.factor"});
  expect_names(rope(R"({"rope_type": "linear", "factor": -1})", DS_ERROR_INVALID_ARGUMENT), {"factor", "-1"});
  expect_names(rope("3", DS_ERROR_INVALID_ARGUMENT), {"rope_parameters", "3"});
}

TEST(HfConfig, RopeScalingCountsBeforeRopeParameters) {
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

TEST(HfConfig, ThetaWithoutAKeyIsTheFamilys) {
  auto bare = [](Json& c) {
    drop(c, "rope_theta");
    drop(c, "rope_parameters");
    drop(c, "rope_scaling");
  };
  expect_names(graph_of("mixtral", bare), {"theta=1e+06"});
  expect_names(graph_of("qwen2", bare), {"theta=10000.0"});
}

TEST(HfConfig, MagnitudeOfYarn) {
  auto yarn = [](const char* more) {
    Json rope = Json::parse(fmt::format(
        R"({{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, {}}})", more));
    return graph_of("llama", [&](Json& c) { c.set("rope_parameters", rope); });
  };
  // (0.1 * 0.5 ln 4 + 1) / (0.1 * 2 ln 4 + 1)
  expect_names(yarn(R"("mscale": 0.5, "mscale_all_dim": 2)"), {"magnitude=0.83719"});
  expect_names(yarn(R"("attention_factor": 3.5, "mscale": 0.5, "mscale_all_dim": 2)"), {"magnitude=3.5"});
  EXPECT_EQ(yarn(R"("mscale": 0.5)").find("magnitude"), std::string::npos);
}

TEST(HfConfig, LengthOfTheSequenceDecidesLongropeAndDynamic) {
  Json config = config_of("llama");
  int64_t pairs = config.at("hidden_size").integer() / config.at("num_attention_heads").integer() / 2;
  Json::Array brief(static_cast<size_t>(pairs), Json(1.5)), wide(static_cast<size_t>(pairs), Json(3.5));
  Json rope = Json::parse(R"({"rope_type": "longrope", "original_max_position_embeddings": 16})");
  rope.set("short_factor", brief);
  rope.set("long_factor", wide);
  config.set("rope_parameters", rope);
  config.set("max_position_embeddings", 64);
  // sqrt(1 + ln 4 / ln 16)
  expect_names(hf_model(config, 16, 16).graph.print(), {"factors=\"1.5 1.5", "magnitude=1.22474"});
  expect_names(hf_model(config, 17, 17).graph.print(), {"factors=\"3.5 3.5", "magnitude=1.22474"});
  check_continuation(hf_model(config, 16, 16), 5, 16);
  HfModel wider = hf_model(config, 20, 20);
  check_continuation(wider, 17, 20);
  expect_names(message_of([&] { check_continuation(wider, 16, 20); }, DS_ERROR_UNSUPPORTED),
               {"llama", "16 tokens to 20", "beyond 16"});

  config.set("rope_parameters", Json::parse(R"({"rope_type": "dynamic", "factor": 2.0})"));
  config.set("max_position_embeddings", 16);
  expect_names(hf_model(config, 16, 16).graph.print(), {"theta=10000.0"});
  HfModel stretched = hf_model(config, 24, 24);
  // 10000 * (2 * 24 / 16 - 1)^(dims / (dims - 2))
  double theta = 10000 * std::pow(2.0, static_cast<double>(pairs) / static_cast<double>(pairs - 1));
  Attrs want{{"theta", theta}};
  expect_names(stretched.graph.print(), {want.print().substr(1, want.print().size() - 2)});
  expect_names(message_of([&] { check_continuation(stretched, 20, 24); }, DS_ERROR_UNSUPPORTED),
               {"beyond 16"});
}

TEST(HfConfig, NeoxTwinsMustAgree) {
  Json config = Json::parse(R"({"model_type": "gpt_neox", "vocab_size": 32, "hidden_size": 32,
    "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "rotary_pct": 0.5,
    "rotary_emb_base": 500, "partial_rotary_factor": 0.5, "rope_theta": 500})");
  expect_names(hf_model(config, 16, 16).graph.print(), {"dims=8", "theta=500.0"});
  auto refused = [&](const char* key, double value) {
    Json changed = config;
    changed.set(key, value);
    return message_of([&] { hf_model(changed, 16, 16); }, DS_ERROR_INVALID_ARGUMENT);
  };
  expect_names(refused("rope_theta", 600), {"rope_theta", "rotary_emb_base", "500", "600"});
  expect_names(refused("partial_rotary_factor", 0.25),
               {"partial_rotary_factor", "rotary_pct", "0.5", "0.25"});
}

TEST(HfConfig, PaddingTokens) {
  auto padding = [](const std::string& model, const Json* value) {
    std::string text = graph_of(model, [&](Json& c) {
      drop(c, "pad_token_id");
      if (value != nullptr) c.set("pad_token_id", *value);
    });
    size_t at = text.find("padding=");
    return at == std::string::npos ? -1 : std::stol(text.substr(at + 8));
  };
  Json three = 3, last = -1, none;
  for (const char* model : {"llama", "qwen2", "mixtral", "bert", "opt"}) {
    EXPECT_EQ(padding(model, &three), 3) << model;
    EXPECT_EQ(padding(model, &last), config_of(model).at("vocab_size").integer() - 1) << model;
    EXPECT_EQ(padding(model, &none), -1) << model;
  }
  EXPECT_EQ(padding("gpt2", &three), -1);
  EXPECT_EQ(padding("llama", nullptr), -1);
  EXPECT_EQ(padding("bert", nullptr), 0);
  EXPECT_EQ(padding("opt", nullptr), 1);
  expect_names(refusal("llama", DS_ERROR_INVALID_ARGUMENT, "pad_token_id", 1000), {"pad_token_id", "1000"});
}

TEST(HfConfig, RefusesWhatItDoesNotKnow) {
  expect_names(refusal("gpt2", DS_ERROR_UNSUPPORTED, "model_type", "t5"), {"model_type", "gpt2", "'t5'"});
  expect_names(refusal("gpt2", DS_ERROR_UNSUPPORTED, "model_type", Json()), {"model_type", "''"});
  expect_names(
      refusal("llama", DS_ERROR_UNSUPPORTED, "architectures", Json::Array{"LlamaForSequenceClassification"}),
      {"architectures", "LlamaForCausalLM", "LlamaForSequenceClassification"});
  expect_names(refusal("llama", DS_ERROR_UNSUPPORTED, "quantization_config", Json::parse(R"({"bits": 4})")),
               {"quantization_config", R"("bits": 4)", "llama"});
  expect_names(refusal("gpt2", DS_ERROR_UNSUPPORTED, "activation_function", "quick_gelu"),
               {"activation_function", "gelu_new", "quick_gelu"});
  expect_names(refusal("bert", DS_ERROR_UNSUPPORTED, "is_decoder", true), {"is_decoder", "false", "true"});
  expect_names(refusal("bert", DS_ERROR_UNSUPPORTED, "position_embedding_type", "relative_key"),
               {"position_embedding_type", "relative_key"});
  expect_names(refusal("opt", DS_ERROR_UNSUPPORTED, "layer_norm_elementwise_affine", false),
               {"layer_norm_elementwise_affine", "false"});
  expect_names(refusal("qwen2", DS_ERROR_UNSUPPORTED, "layer_types",
                       Json::Array{"full_attention", "chunked_attention", "full_attention"}),
               {"layer_types", "chunked_attention"});
  // An option of another family is not known here.
  expect_names(refusal("llama", DS_ERROR_UNSUPPORTED, "sliding_window", 8), {"sliding_window", "8", "llama"});
}

TEST(HfConfig, RefusesValuesThatCannotBe) {
  auto wrong = [](const char* model, const char* key, const Json& value) {
    std::string text = refusal(model, DS_ERROR_INVALID_ARGUMENT, key, value);
    expect_names(text, {key, value.is_null() ? "none" : value.dump()});
  };
  wrong("llama", "hidden_size", Json());
  for (const Json& value : {Json(0), Json(-4), Json("64"), Json(1.5), Json(int64_t{1} << 40)}) {
    wrong("llama", "hidden_size", value);
  }
  wrong("llama", "rms_norm_eps", 0);
  wrong("llama", "tie_word_embeddings", "yes");
  wrong("llama", "hidden_act", 3);
  wrong("llama", "num_key_value_heads", 3);
  wrong("gpt2", "n_head", 5);
  wrong("mixtral", "num_experts_per_tok", 5);
  wrong("qwen2", "max_window_layers", -1);
  expect_names(refusal("gpt2", DS_ERROR_UNSUPPORTED, "n_layer", 1 << 20), {"n_layer", "4096", "1048576"});
  expect_names(message_of([] { hf_model(Json(3), 1, 1); }, DS_ERROR_INVALID_ARGUMENT), {"object", "integer"});
  expect_names(message_of([] { hf_model(config_of("gpt2"), 64, 49); }, DS_ERROR_INVALID_ARGUMENT),
               {"n_positions", "48", "49"});
  expect_names(message_of([] { hf_model(config_of("llama"), 0, 16); }, DS_ERROR_INVALID_ARGUMENT), {"bound"});
}

TEST(HfConfig, KeysWithoutEffectAndNullChangeNothing) {
  for (const std::string& model : golden_models()) {
    std::string before = graph_of(model);
    EXPECT_EQ(before, graph_of(model,
                               [](Json& c) {
                                 c.set("use_cache", false);
                                 c.set("eos_token_id", Json::Array{1, 2});
                                 c.set("attention_dropout", 0.1);
                                 c.set("something_new", Json());
                                 drop(c, "transformers_version");
                                 drop(c, "architectures");
                               }))
        << model;
  }
}

TEST(HfConfig, NoiseIsPartOfTrainingOnly) {
  auto graph = [](const std::string& model, const char* key, double p, HfMode mode) {
    Json config = config_of(model);
    config.set(key, p);
    return hf_model(config, 32, 16, mode).graph;
  };
  auto dropouts = [](const Graph& graph) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                         [](const Node& n) { return n.op == "dropout"; });
  };
  // Two layers with two branches, and the embeddings where they have it.
  for (auto [model, key, count] : {std::tuple{"gpt2", "resid_pdrop", 4},
                                   {"gpt2", "embd_pdrop", 1},
                                   {"bert", "hidden_dropout_prob", 5},
                                   {"opt", "dropout", 4}}) {
    EXPECT_EQ(dropouts(graph(model, key, 0.1, HfMode::training)), count) << key;
    EXPECT_EQ(dropouts(graph(model, key, 0, HfMode::training)), 0) << key;
    EXPECT_EQ(dropouts(graph(model, key, 0.1, HfMode::evaluation)), 0) << key;
    EXPECT_THROW(graph(model, key, 1.0, HfMode::training), Error);
  }
  for (auto [model, key] : {std::pair{"gpt2", "attn_pdrop"},
                            {"bert", "attention_probs_dropout_prob"},
                            {"llama", "attention_dropout"},
                            {"opt", "layerdrop"},
                            {"mixtral", "router_jitter_noise"}}) {
    expect_names(message_of([&] { graph(model, key, 0.1, HfMode::training); }, DS_ERROR_UNSUPPORTED),
                 {key, "training", "0.1"});
    EXPECT_EQ(graph(model, key, 0, HfMode::training).print(),
              graph(model, key, 0.1, HfMode::evaluation).print());
  }
}

// Whatever a configuration says, the answer is a graph or one error.
TEST(HfConfig, AnyValueOfAnyKeyEndsInAGraphOrAnError) {
  const char* values[] = {"null",
                          "true",
                          "false",
                          "0",
                          "-1",
                          "1",
                          "2",
                          "3",
                          "1e300",
                          "1e-300",
                          "0.5",
                          "9223372036854775807",
                          "\"\"",
                          "\"gelu\"",
                          "[]",
                          "[1]",
                          "{}",
                          "{\"rope_type\": 3}",
                          "[\"full_attention\", \"sliding_attention\"]"};
  int64_t graphs = 0, errors = 0;
  for (const std::string& model : golden_models()) {
    Json config = config_of(model);
    for (size_t k = 0; k < config.object().size(); ++k) {
      for (const char* value : values) {
        Json changed = config;
        changed.object()[k].second = Json::parse(value);
        try {
          hf_model(changed, 32, 16).graph.check();
          ++graphs;
        } catch (const Error& error) {
          ds_status status = error.status();
          EXPECT_TRUE(status == DS_ERROR_UNSUPPORTED || status == DS_ERROR_INVALID_ARGUMENT)
              << model << ": " << config.object()[k].first << " = " << value << ": " << error.what();
          EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
          ++errors;
        }
      }
    }
  }
  EXPECT_GT(graphs, 500);
  EXPECT_GT(errors, 500);
}

TEST(HfConfig, WindowsByLayer) {
  auto windows = [](const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find("window=6"); at != std::string::npos; at = text.find("window=6", at + 1))
      ++count;
    return count;
  };
  auto qwen = [&](bool used, int from, bool types) {
    return windows(graph_of("qwen2", [&](Json& c) {
      c.set("use_sliding_window", used);
      c.set("sliding_window", 6);
      c.set("max_window_layers", from);
      if (!types) drop(c, "layer_types");
    }));
  };
  EXPECT_EQ(qwen(false, 0, false), 0u);
  EXPECT_EQ(qwen(true, 1, false), 2u);
  EXPECT_EQ(qwen(true, 0, true), 0u);  // layer_types counts
  Json types = Json::Array{"sliding_attention", "full_attention", "full_attention"};
  expect_names(refusal("qwen2", DS_ERROR_INVALID_ARGUMENT, "layer_types", types), {"sliding_window"});
  auto mistral = [&](const Json& window, bool given) {
    return graph_of("llama", [&](Json& c) {
      c.set("model_type", "mistral");
      for (const char* key : {"architectures", "attention_bias", "mlp_bias"}) drop(c, key);
      if (given) c.set("sliding_window", window);
    });
  };
  EXPECT_EQ(windows(mistral(6, true)), 2u);
  EXPECT_EQ(mistral(Json(), true).find("window"), std::string::npos);
  EXPECT_NE(mistral(Json(), false).find("window=4096"), std::string::npos);
}

}  // namespace
}  // namespace ds::test
