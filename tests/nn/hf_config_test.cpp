#include <gtest/gtest.h>

#include <algorithm>
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
  expect_names(rope(R"({"rope_type": "longrope", "factor": 4.0})"),
               {"rope_parameters.rope_type", "'longrope'"});
  expect_names(rope(R"({"rope_type": "linear", "factor": 4.0, "short": [1]})"),
               {"rope_parameters.short", "[1]"});
  expect_names(rope(R"({"rope_type": "yarn", "factor": 4.0, "attention_factor": 3.0})"),
               {"attention_factor", "3"});
  expect_names(rope(R"({"rope_type": "yarn", "factor": 4.0, "truncate": false})"), {"truncate", "false"});
  expect_names(rope(R"({"rope_type": "linear"})", DS_ERROR_INVALID_ARGUMENT), {"rope_parameters.factor"});
  expect_names(rope(R"({"rope_type": "linear", "factor": -1})", DS_ERROR_INVALID_ARGUMENT), {"factor", "-1"});
  expect_names(rope("3", DS_ERROR_INVALID_ARGUMENT), {"rope_parameters", "3"});
  expect_names(rope(R"({"partial_rotary_factor": 0.1})", DS_ERROR_INVALID_ARGUMENT), {"0.1"});
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
