#include "support/hf_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "checkpoint/model_folder.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "nn/models/hf.h"
#include "support/errors.h"
#include "support/hf_golden.h"

namespace ds::test {
namespace {

TEST(HfConfig, PaddingTokensHaveNoGradient) {
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
  expect_names(refusal("llama", DS_ERROR_INVALID_ARGUMENT, "pad_token_id", 1000),
               {"pad_token_id", "1000"});
}

TEST(HfConfig, RefusesUnknownKeysAndValues) {
  expect_names(refusal("gpt2", DS_ERROR_UNSUPPORTED, "model_type", "t5"),
               {"model_type", "gpt2", "'t5'"});
  expect_names(refusal("gpt2", DS_ERROR_UNSUPPORTED, "model_type", Json()),
               {"model_type", "missing", "gpt2"});
  expect_names(refusal("llama", DS_ERROR_UNSUPPORTED, "is_causal", false),
               {"is_causal", "true", "false"});
  expect_names(refusal("gemma2", DS_ERROR_UNSUPPORTED, "use_bidirectional_attention", true),
               {"use_bidirectional_attention", "false", "true"});
  expect_names(refusal("gpt2", DS_ERROR_UNSUPPORTED, "add_cross_attention", true),
               {"add_cross_attention", "false", "true"});
  expect_names(
      refusal("llama", DS_ERROR_UNSUPPORTED, "quantization_config", Json::parse(R"({"bits": 4})")),
      {"quantization_config", R"("bits": 4)", "llama"});
  expect_names(refusal("gpt2", DS_ERROR_UNSUPPORTED, "activation_function", "mish"),
               {"activation_function", "gelu_new", "mish"});
  expect_names(refusal("bert", DS_ERROR_UNSUPPORTED, "is_decoder", true),
               {"is_decoder", "false", "true"});
  expect_names(refusal("bert", DS_ERROR_UNSUPPORTED, "position_embedding_type", "relative_key"),
               {"position_embedding_type", "relative_key"});
  expect_names(refusal("qwen2", DS_ERROR_UNSUPPORTED, "layer_types",
                       Json::Array{"full_attention", "chunked_attention", "full_attention"}),
               {"layer_types", "chunked_attention"});
}

TEST(HfConfig, RefusesImpossibleValues) {
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
  expect_names(refusal("gpt2", DS_ERROR_UNSUPPORTED, "n_layer", 1 << 20),
               {"n_layer", "2048", "1048576"});
  expect_names(message_of([] { hf_model(Json(3), 1, 1); }, DS_ERROR_INVALID_ARGUMENT),
               {"object", "integer"});
  expect_names(message_of([] { hf_model(config_of("gpt2"), 64, 49); }, DS_ERROR_INVALID_ARGUMENT),
               {"n_positions", "48", "49"});
  expect_names(message_of([] { hf_model(config_of("llama"), 0, 16); }, DS_ERROR_INVALID_ARGUMENT),
               {"bound"});
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

TEST(HfConfig, DropoutIsPartOfTrainingOnly) {
  auto graph = [](const std::string& model, const char* key, double p, HfMode mode) {
    Json config = config_of(model);
    config.set(key, p);
    return hf_model(config, 32, 16, mode).graph;
  };
  auto dropouts = [](const Graph& graph) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                         [](const Node& n) { return n.op == "dropout"; });
  };
  // Two layers with two branches each, and the embeddings in families that apply this dropout to
  // them.
  for (auto [model, key, count] : {std::tuple{"gpt2", "resid_pdrop", 4},
                                   {"gpt2", "embd_pdrop", 1},
                                   {"bert", "hidden_dropout_prob", 5},
                                   {"opt", "dropout", 4}}) {
    EXPECT_EQ(dropouts(graph(model, key, 0.1, HfMode::training)), count) << key;
    EXPECT_EQ(dropouts(graph(model, key, 0, HfMode::training)), 0) << key;
    EXPECT_EQ(dropouts(graph(model, key, 0.1, HfMode::evaluation)), 0) << key;
    EXPECT_THROW(graph(model, key, 1.0, HfMode::training), Error);
  }
  // Dropout of attention weights: two layers with separate random streams.
  for (auto [model, key] : {std::pair{"gpt2", "attn_pdrop"},
                            {"bert", "attention_probs_dropout_prob"},
                            {"llama", "attention_dropout"},
                            {"phi3", "attention_dropout"},
                            {"gemma2", "attention_dropout"},
                            {"mixtral", "attention_dropout"},
                            {"gpt_neox", "attention_dropout"},
                            {"opt", "attention_dropout"}}) {
    std::set<int64_t> streams;
    for (const Node& node : graph(model, key, 0.1, HfMode::training).nodes) {
      if (!node.attrs.has("dropout")) continue;
      EXPECT_EQ(node.attrs.real("dropout"), 0.1) << key;
      streams.insert(node.attrs.integer("op"));
    }
    EXPECT_EQ(streams.size(), 2u) << model;
    EXPECT_EQ(graph(model, key, 0, HfMode::training).print(),
              graph(model, key, 0.1, HfMode::evaluation).print());
    EXPECT_THROW(graph(model, key, 1.0, HfMode::training), Error);
  }
  const char* key = "router_jitter_noise";
  expect_names(
      message_of([&] { graph("mixtral", key, 0.1, HfMode::training); }, DS_ERROR_UNSUPPORTED),
      {key, "training", "0.1"});
  EXPECT_EQ(graph("mixtral", key, 0, HfMode::training).print(),
            graph("mixtral", key, 0.1, HfMode::evaluation).print());
}

// Layerdrop leaves out whole layers, each by a separate draw. Both forms of OPT's layer are tested.
TEST(HfConfig, EveryLayerOfOptMayBeLeftOut) {
  for (bool norm_before : {true, false}) {
    Json config = config_of("opt");
    config.set("do_layer_norm_before", norm_before);
    std::string plain = hf_model(config, 32, 16, HfMode::training).graph.print();
    config.set("layerdrop", 0.2);
    HfModel model = hf_model(config, 32, 16, HfMode::training);
    std::set<int64_t> streams;
    for (const Node& node : model.graph.nodes) {
      if (node.op != "layerdrop") continue;
      EXPECT_EQ(node.attrs.real("p"), 0.2);
      streams.insert(node.attrs.integer("op"));
    }
    EXPECT_EQ(static_cast<int64_t>(streams.size()), config.find("num_hidden_layers")->integer());
    EXPECT_NE(model.graph.print(), plain);
    std::string still = hf_model(config, 32, 16).graph.print();
    config.set("layerdrop", 0.0);
    EXPECT_EQ(still, hf_model(config, 32, 16).graph.print());
    config.set("layerdrop", 1.0);
    EXPECT_THROW(hf_model(config, 32, 16, HfMode::training), Error);
  }
}

// The defaults are those of Transformers' classes, recorded in tests/data/hf_defaults.json.
TEST(HfConfig, AbsentDropoutKeysHaveTheDefaultsOfTransformers) {
  auto without = [](const std::string& model, std::string_view key) {
    Json config = config_of(model);
    drop(config, key);
    return config;
  };
  for (auto [model, key] : {std::pair{"gpt2", "resid_pdrop"},
                            {"gpt2", "embd_pdrop"},
                            {"gpt2", "attn_pdrop"},
                            {"bert", "hidden_dropout_prob"},
                            {"bert", "attention_probs_dropout_prob"},
                            {"opt", "dropout"}}) {
    Json given = without(model, key);
    given.set(key, 0.1);
    std::string text = hf_model(without(model, key), 32, 16, HfMode::training).graph.print();
    EXPECT_EQ(text, hf_model(given, 32, 16, HfMode::training).graph.print()) << key;
    EXPECT_NE(text, graph_of(model)) << key;
    EXPECT_EQ(hf_model(without(model, key), 32, 16).graph.print(), graph_of(model)) << key;
  }
  for (auto [model, key] : {std::pair{"opt", "layerdrop"}, {"llama", "attention_dropout"}}) {
    EXPECT_EQ(hf_model(without(model, key), 32, 16, HfMode::training).graph.print(),
              graph_of(model))
        << key;
  }
}

// Transformers treats null as false, except for is_causal, where the result depends on the mask.
TEST(HfConfig, NullEqualsTheOnlyAcceptedValue) {
  for (const std::string& model : golden_models()) {
    for (const char* key :
         {"is_encoder_decoder", "add_cross_attention", "is_decoder", "quantization_config",
          "use_bidirectional_attention", "per_layer_config"}) {
      EXPECT_EQ(graph_of(model, [&](Json& c) { c.set(key, Json()); }), graph_of(model))
          << model << ": " << key;
    }
    if (model == "bert") continue;
    for (const Json& value : {Json(), Json(false)}) {
      expect_names(refusal(model, DS_ERROR_UNSUPPORTED, "is_causal", value),
                   {"'is_causal' of a " + model, "must be true, got " + value.dump()});
    }
  }
}

// Any value of any key gives a graph or exactly one error.
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
              << model << ": " << config.object()[k].first << " = " << value << ": "
              << error.what();
          EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
          ++errors;
        }
      }
    }
  }
  EXPECT_GT(graphs, 500);
  EXPECT_GT(errors, 500);
}

// Transformers reads a list of layer types in four families. In the other families, every layer has
// the window.
TEST(HfConfig, LayerTypesApplyOnlyWhereTransformersReadsThem) {
  auto windows = [](const std::string& family, const char* like) {
    Json config = config_of(like);
    config.set("model_type", family);
    config.set("sliding_window", 6);
    config.set("use_sliding_window", true);
    int64_t layers = config.at("num_hidden_layers").integer();
    Json::Array types(static_cast<size_t>(layers), Json("full_attention"));
    types[0] = "sliding_attention";
    config.set("layer_types", types);
    HfModel model = hf_model(config, 32, 16);
    bool warned =
        std::find(model.unread.begin(), model.unread.end(), "layer_types") != model.unread.end();
    auto seen =
        std::count_if(model.graph.nodes.begin(), model.graph.nodes.end(), [](const Node& node) {
          return node.op == "attention" && node.attrs.integer_or("window", 0) == 6;
        });
    return std::tuple{seen == layers, seen == 1, warned};
  };
  for (auto [family, like] :
       {std::pair{"mistral", "mistral"}, {"phi3", "phi3"}, {"mixtral", "mixtral"}}) {
    EXPECT_EQ(windows(family, like), (std::tuple{true, false, true})) << family;
  }
  for (auto [family, like] : {std::pair{"ministral", "mistral"},
                              {"qwen2", "qwen2"},
                              {"qwen3", "qwen3"},
                              {"gemma2", "gemma2"}}) {
    EXPECT_EQ(windows(family, like), (std::tuple{false, true, false})) << family;
  }
}

// These keys occur in published files, but Transformers does not read them.
TEST(HfConfig, KeysThatTransformersDoesNotReadAreNamedAndIgnored) {
  Json odd = Json::parse(R"({"n_special": 0, "predict_special_tokens": true, "output_past": true,
    "is_llama_config": true, "rope_interleaved": false, "sliding_window_size": 4096, "full_attn_mod": 1,
    "interpolate_factor": 1, "lm_head_bias": false, "pooler_type": "first_token_transform",
    "max_sequence_length": 2048, "unsloth_fixed": true, "custom_pipelines": {}, "masked_softmax_fusion": true})");
  for (const std::string& model : golden_models()) {
    Json config = config_of(model);
    std::vector<std::string> before = hf_model(config, 32, 16).unread, wanted = before;
    for (const auto& [key, value] : odd.object()) {
      config.set(key, value);
      wanted.push_back(key);
    }
    HfModel changed = hf_model(config, 32, 16);
    EXPECT_EQ(changed.graph.print(), graph_of(model)) << model;
    EXPECT_EQ(changed.unread, wanted) << model;
  }
  Json phi = config_of("phi3");
  phi.set("mlp_bias", true);
  EXPECT_EQ(hf_model(phi, 32, 16).graph.print(), graph_of("phi3"));
  Json rope = config_of("llama");
  rope.set("rope_scaling", Json::parse(R"({"type": "yarn", "factor": 4.0, "finetuned": true,
                                            "original_max_position_embeddings": 16})"));
  EXPECT_EQ(hf_model(rope, 32, 16).unread, (std::vector<std::string>{"rope_scaling.finetuned"}));
}

// With rope, a text may continue beyond max_position_embeddings; with a table of positions it may
// not.
TEST(HfConfig, OnlyATableOfPositionsLimitsAText) {
  for (const std::string& model : golden_models()) {
    Json config = config_of(model);
    const char* key = model == "gpt2" ? "n_positions" : "max_position_embeddings";
    bool table = model == "gpt2" || model == "opt" || model == "bert";
    EXPECT_EQ(hf_positions(config), table ? config.at(key).integer() : 0) << model;
    config.set(key, 20);
    if (table) {
      EXPECT_THROW(hf_model(config, 32, 32), Error) << model;
    } else {
      hf_model(config, 32, 32).graph.check();
    }
  }
}

TEST(HfConfig, OneWarningNamesAllIgnoredKeys) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::warning) lines.emplace_back(line);
  });
  HfModel model;
  warn_unread(model, "dir");
  model.family = "phi3";
  model.unread = {"layer_types", "mlp_bias"};
  warn_unread(model, "dir");
  flush_log();
  set_log_sink({});
  ASSERT_EQ(lines.size(), 1u);
  expect_names(lines[0], {"dir/config.json", "phi3", "layer_types, mlp_bias"});
}

TEST(HfConfig, AlternativeNamesOfKeysAreRead) {
  std::string plain = graph_of("gpt2");
  EXPECT_NE(plain, graph_of("gpt2", [](Json& c) { c.set("num_attention_heads", 1); }));
  EXPECT_EQ(plain, graph_of("gpt2", [](Json& c) {
              c.set("hidden_size", c.at("n_embd").integer());
              drop(c, "n_embd");
            }));
  EXPECT_EQ(graph_of("mixtral"), graph_of("mixtral", [](Json& c) {
              c.set("num_experts", c.at("num_local_experts").integer());
              drop(c, "num_local_experts");
            }));
}

// The names of the weights determine what a file contains, whichever head it was saved with.
TEST(HfConfig, ArchitecturesDoNotChangeNumbers) {
  for (const char* name : {"BertForPreTraining", "BertModel", "BertLMHeadModel"}) {
    EXPECT_EQ(graph_of("bert"),
              graph_of("bert", [&](Json& c) { c.set("architectures", Json::Array{name}); }));
  }
}

TEST(HfConfig, MinistralIsMistralWithLayerTypes) {
  std::string text = graph_of("mistral");
  std::string same = graph_of("mistral", [](Json& c) { c.set("model_type", "ministral"); });
  EXPECT_EQ(text.substr(text.find('\n')), same.substr(same.find('\n')));
}

TEST(HfConfig, OptMayLackWeightsOfNorms) {
  Json config = config_of("opt");
  config.set("layer_norm_elementwise_affine", false);
  HfModel model = hf_model(config, 32, 16);
  model.graph.check();
  for (const Parameter& param : model.graph.params) {
    EXPECT_EQ(param.name.find("layer_norm"), std::string::npos) << param.name;
  }
}

TEST(HfConfig, ActivationsHaveTheirNamesInTransformers) {
  for (auto [theirs, ours] : {std::pair{"gelu_python_tanh", "gelu_tanh"},
                              {"gelu_accurate", "gelu_tanh"},
                              {"tanh", "tanh"},
                              {"relu2", "relu2"},
                              {"laplace", "laplace"},
                              {"sigmoid", "sigmoid"},
                              {"quick_gelu", "quick_gelu"},
                              {"gelu_10", "gelu_10"}}) {
    auto named = [&, &name = theirs](Json& c) { c.set("hidden_act", name); };
    expect_names(graph_of("llama", named), {fmt::format("act=\"{}\"", ours)});
    std::string plain = ours == std::string("gelu_10") ? "form=\"10\"" : std::string(ours);
    if (plain == "gelu_tanh") plain = "gelu ";
    expect_names(graph_of("gpt_neox", named), {plain});
  }
}

// Any family supports a mask on request. Only attention and the routers' loss read it.
TEST(HfConfig, EveryFamilySupportsAMask) {
  for (const std::string& model : golden_models()) {
    Json config = config_of(model);
    Graph graph = hf_model(config, 32, 16, HfMode::evaluation, HfRows::masked).graph;
    graph.check();
    ValueId mask = graph.find_value("mask");
    ASSERT_TRUE(mask.exists()) << model;
    for (const Node& node : graph.nodes) {
      bool reads = std::find(node.in.begin(), node.in.end(), mask) != node.in.end();
      EXPECT_EQ(reads, node.op == "attention" || node.op == "load_balance")
          << model << ": " << node.op;
    }
    bool always = model == "bert" || model == "opt";
    EXPECT_EQ(hf_model(config, 32, 16).graph.find_value("mask").exists(), always) << model;
  }
}

TEST(HfConfig, WindowsApplyByLayer) {
  auto windows = [](const std::string& text) {
    size_t count = 0;
    for (size_t at = text.find("window=6"); at != std::string::npos;
         at = text.find("window=6", at + 1))
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
  // layer_types takes precedence over max_window_layers.
  EXPECT_EQ(qwen(true, 0, true), 0u);
  Json types = Json::Array{"sliding_attention", "full_attention", "full_attention"};
  expect_names(refusal("qwen2", DS_ERROR_INVALID_ARGUMENT, "layer_types", types),
               {"sliding_window"});
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
