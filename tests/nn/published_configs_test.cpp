// Tests configurations of published models with small sizes (hf_configs.json): the graph must have
// the properties that each key states, as Transformers interprets it. hf_defaults.json records the
// meaning of absent keys.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "nn/models/hf.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds::test::published_configs {
namespace {

constexpr int64_t kRows = 32, kSeq = 16;

// Keys that do not affect the graph: special tokens, names, files and settings of other programs,
// heads other than the language model's, and keys that Transformers does not read.
const std::vector<const char*> kNothing{"_attn_implementation",
                                        "_name_or_path",
                                        "_num_labels",
                                        "architectures",
                                        "auto_map",
                                        "bos_token_id",
                                        "cache_implementation",
                                        "classifier_dropout",
                                        "custom_pipelines",
                                        "directionality",
                                        "dtype",
                                        "eos_token_id",
                                        "full_attn_mod",
                                        "gradient_checkpointing",
                                        "id2label",
                                        "interpolate_factor",
                                        "is_llama_config",
                                        "label2id",
                                        "learned_embeddings",
                                        "lm_head_bias",
                                        "masked_softmax_fusion",
                                        "max_sequence_length",
                                        "model_type",
                                        "n_ctx",
                                        "n_special",
                                        "output_past",
                                        "pooler_fc_size",
                                        "pooler_num_attention_heads",
                                        "pooler_num_fc_layers",
                                        "pooler_size_per_head",
                                        "pooler_type",
                                        "predict_special_tokens",
                                        "prefix",
                                        "pretraining_tp",
                                        "rope_interleaved",
                                        "router_jitter_noise",
                                        "scale_embeddings",
                                        "sliding_window_size",
                                        "summary_activation",
                                        "summary_first_dropout",
                                        "summary_proj_to_labels",
                                        "summary_type",
                                        "summary_use_proj",
                                        "task_specific_params",
                                        "torch_dtype",
                                        "transformers.js_config",
                                        "transformers_version",
                                        "unsloth_fixed",
                                        "unsloth_version",
                                        "use_cache",
                                        "use_mrope",
                                        "activation_dropout"};

const std::map<std::string, std::string> kActivations{
    {"silu", "silu"},           {"gelu", "gelu_erf"}, {"gelu_new", "gelu_tanh"},
    {"gelu_fast", "gelu_tanh"}, {"relu", "relu"},     {"gelu_pytorch_tanh", "gelu_tanh"}};

class Published {
 public:
  Published(const Record& config, const Json& defaults)
      : config_(config),
        defaults_(defaults),
        family_(config.at("model_type").string()),
        graph_(hf_model(config.all_unread(), kRows, kSeq).graph) {
    Json trained = config.all_unread();
    if (trained.find("layerdrop")) {
      EXPECT_EQ(config.at("layerdrop").number(), 0);
    }
    trained_ = hf_model(trained, kRows, kSeq, HfMode::training).graph;
    graph_.check();
    trained_.check();
  }

  void check() {
    if (family_ == "gpt2") {
      gpt2();
    } else if (family_ == "gpt_neox") {
      gpt_neox();
    } else if (family_ == "opt") {
      opt();
    } else if (family_ == "bert") {
      bert();
    } else {
      decoder();
    }
  }

 private:
  // Returns the value of the key, or else Transformers' default, which may be null.
  const Json& value(const std::string& key) const {
    static const Json none;
    if (const Json* given = config_.find(key); given && !given->is_null()) return *given;
    const bool null = config_.has(key);
    const Json* otherwise = defaults_.at("families").at(family_).at("keys").find(key);
    return null || !otherwise ? none : *otherwise;
  }
  int64_t size(const std::string& key) const { return value(key).integer(); }
  int64_t size_or(const std::string& key, int64_t otherwise) const {
    const Json& found = value(key);
    return found.is_null() ? otherwise : found.integer();
  }
  double number(const std::string& key) const { return value(key).number(); }
  bool flag(const std::string& key) const { return !value(key).is_null() && value(key).boolean(); }
  std::string activation(const std::string& key) const {
    const auto found = kActivations.find(value(key).string());
    EXPECT_NE(found, kActivations.end()) << value(key).string() << " is not known here";
    return found == kActivations.end() ? "" : found->second;
  }

  std::vector<const Node*> nodes(const Graph& graph, const std::string& op) const {
    std::vector<const Node*> out;
    for (const Node& node : graph.nodes) {
      if (node.op == op) out.push_back(&node);
    }
    return out;
  }
  bool has_param(const std::string& name) const { return graph_.find_param(name).exists(); }
  void shape(const std::string& name, const std::vector<int64_t>& want) const {
    const ParamId p = graph_.find_param(name);
    ASSERT_TRUE(p.exists()) << name;
    const Shape& got = graph_.type(graph_.params[p].value).shape;
    ASSERT_EQ(got.rank(), want.size()) << name;
    for (size_t d = 0; d < want.size(); ++d) EXPECT_EQ(got[d].extent, want[d]) << name << " " << d;
  }
  void drawn(const std::string& name, double deviation) const {
    const ParamId p = graph_.find_param(name);
    ASSERT_TRUE(p.exists()) << name;
    EXPECT_EQ(graph_.params[p].init.kind, "normal") << name;
    EXPECT_EQ(graph_.params[p].init.scale, deviation) << name;
  }

  // The expected attention of all layers.
  struct Attention {
    int64_t layers, heads, kv_heads;
    // The window of each layer; empty if no layer has a window.
    std::vector<int64_t> windows;
    double scale = 0, softcap = 0, dropout = 0;
    bool causal = true;
  };
  void attention(const Attention& want) const {
    const std::vector<const Node*> all = nodes(graph_, "attention"),
                                   noisy = nodes(trained_, "attention");
    ASSERT_EQ(static_cast<int64_t>(all.size()), want.layers);
    ASSERT_EQ(noisy.size(), all.size());
    for (size_t l = 0; l < all.size(); ++l) {
      const Attrs& attrs = all[l]->attrs;
      EXPECT_EQ(attrs.integer("heads"), want.heads);
      EXPECT_EQ(attrs.integer_or("kv_heads", want.heads), want.kv_heads);
      EXPECT_EQ(attrs.integer_or("window", 0), want.windows.empty() ? 0 : want.windows[l])
          << "layer " << l;
      EXPECT_EQ(attrs.integer_or("causal", 1) != 0, want.causal);
      EXPECT_EQ(attrs.real_or("scale", 0), want.scale);
      EXPECT_EQ(attrs.real_or("softcap", 0), want.softcap);
      EXPECT_EQ(noisy[l]->attrs.real_or("dropout", 0), want.dropout);
    }
  }
  // Checks the probabilities of all dropouts in training, in graph order.
  void dropouts(const std::vector<double>& want) const {
    std::vector<double> got, all;
    for (const Node* node : nodes(trained_, "dropout")) got.push_back(node->attrs.real("p"));
    for (double p : want) {
      if (p != 0) all.push_back(p);
    }
    EXPECT_EQ(got, all);
  }
  void norms(const char* op, double eps) const {
    const std::vector<const Node*> all = nodes(graph_, op);
    EXPECT_FALSE(all.empty());
    for (const Node* node : all) EXPECT_EQ(node->attrs.real("eps"), eps);
  }
  void activations(const std::string& act, bool gated) const {
    const bool gelu = act.starts_with("gelu");
    const std::vector<const Node*> all = nodes(graph_, gated ? "glu" : gelu ? "gelu" : act);
    EXPECT_FALSE(all.empty()) << act;
    for (const Node* node : all) {
      if (gated) {
        EXPECT_EQ(node->attrs.text("act"), act);
      }
      if (!gated && gelu) {
        EXPECT_EQ("gelu_" + std::string(node->attrs.text_or("form", "tanh")), act);
      }
    }
  }
  void tokens(const std::string& table, int64_t width, int64_t padding) const {
    shape(table, {size("vocab_size"), width});
    const std::vector<const Node*> all = nodes(graph_, "embedding");
    ASSERT_FALSE(all.empty());
    EXPECT_EQ(all[0]->attrs.integer_or("padding", -1), padding);
  }
  // Returns the row of the token table that has no gradient, or -1. The family's default row may
  // not exist in a smaller table.
  int64_t padding() const {
    const Json& row = value("pad_token_id");
    const int64_t vocab = size("vocab_size");
    if (row.is_null() || (!config_.has("pad_token_id") && row.integer() >= vocab)) return -1;
    return row.integer() < 0 ? row.integer() + vocab : row.integer();
  }

  // Checks how many columns of a head of this width are rotated, and how.
  void ropes(int64_t width, const char* theta_key, const char* partial_key, double theta,
             double partial) const {
    const Json* object = config_.find("rope_scaling");
    if (!object || object->is_null()) object = config_.find("rope_parameters");
    config_.find("rope_parameters");
    std::optional<Record> scaling;
    if (object && !object->is_null()) scaling.emplace(*object, "rope");
    if (scaling) scaling->told({"finetuned"});
    const auto of = [&](const char* key) { return scaling ? scaling->find(key) : nullptr; };
    if (const Json* given = config_.find(theta_key); given && !given->is_null())
      theta = given->number();
    if (const Json* given = config_.find(partial_key); given && !given->is_null())
      partial = given->number();
    if (const Json* given = of("rope_theta")) theta = given->number();
    const Json *type = of("rope_type"), *older = of("type");
    std::string kind = type ? type->string() : older ? older->string() : "default";
    if (family_ == "phi3" && (kind == "su" || kind == "yarn")) kind = "longrope";
    const auto dims = static_cast<int64_t>(static_cast<double>(width) * partial);
    const int64_t positions = size("max_position_embeddings");
    const int64_t beside = size_or("original_max_position_embeddings", 0);
    const std::vector<const Node*> all = nodes(graph_, "rope");
    EXPECT_FALSE(all.empty());
    const auto given = [&](const char* key) {
      const Json* found = of(key);
      return found && !found->is_null() ? std::optional(found->number()) : std::nullopt;
    };
    const auto inside = given("original_max_position_embeddings");
    const int64_t original = beside > 0 ? beside
                             : inside   ? static_cast<int64_t>(*inside)
                                        : positions;
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "attention_factor",
                            "short_factor", "long_factor", "beta_fast", "beta_slow"})
      of(key);
    for (const Node* node : all) {
      const Attrs& attrs = node->attrs;
      EXPECT_EQ(attrs.real("theta"), theta);
      EXPECT_EQ(attrs.integer_or("dims", width), dims);
      EXPECT_EQ(attrs.text_or("scaling", "default"), kind);
      if (kind == "default") continue;
      if (kind == "longrope") {
        longrope(attrs, *scaling, original, positions);
        continue;
      }
      EXPECT_EQ(attrs.real("factor"), *given("factor"));
      if (kind == "llama3") {
        EXPECT_EQ(attrs.real("low"), *given("low_freq_factor"));
        EXPECT_EQ(attrs.real("high"), *given("high_freq_factor"));
        EXPECT_EQ(attrs.integer("original"), original);
      } else if (kind == "yarn") {
        EXPECT_EQ(attrs.real("low"), given("beta_slow").value_or(1));
        EXPECT_EQ(attrs.real("high"), given("beta_fast").value_or(32));
        EXPECT_EQ(attrs.integer("original"), original);
      } else if (kind == "dynamic") {
        EXPECT_EQ(attrs.integer("original"), positions);
      } else {
        EXPECT_EQ(kind, "linear") << "is not known here";
      }
    }
  }
  void longrope(const Attrs& attrs, const Record& scaling, int64_t original,
                int64_t positions) const {
    const auto text = [&](const char* key) {
      std::vector<double> numbers;
      for (const Json& one : scaling.at(key).array()) numbers.push_back(one.number());
      return fmt::format("{}", fmt::join(numbers, " "));
    };
    EXPECT_EQ(attrs.text("factors"), text("short_factor"));
    EXPECT_EQ(attrs.text("long_factors"), text("long_factor"));
    EXPECT_EQ(attrs.integer("original"), original);
    const auto whole = static_cast<double>(original);
    const double factor = static_cast<double>(positions) / whole;
    EXPECT_NEAR(attrs.real("magnitude"),
                factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(whole)), 1e-12);
  }

  std::vector<int64_t> windows(int64_t layers) const {
    const Json& window = value("sliding_window");
    const bool qwen = family_ == "qwen2" || family_ == "qwen3";
    if (qwen) flag("use_sliding_window");
    const bool used =
        family_ != "llama" && !window.is_null() && (!qwen || flag("use_sliding_window"));
    std::vector<int64_t> out(static_cast<size_t>(layers), 0);
    for (int64_t l = 0; used && l < layers; ++l) {
      if (qwen && l < size("max_window_layers")) continue;
      if (family_ == "gemma2" && l % 2 == 1) continue;
      out[static_cast<size_t>(l)] = window.integer();
    }
    if (qwen) static_cast<void>(value("max_window_layers"));
    return out;
  }

  // Checks Llama and the families derived from it.
  void decoder() {
    const int64_t hidden = size("hidden_size"), inner = size("intermediate_size"),
                  layers = size("num_hidden_layers"), heads = size("num_attention_heads"),
                  kv = size_or("num_key_value_heads", heads),
                  width = size_or("head_dim", hidden / heads);
    const bool packed = family_ == "phi3", gemma = family_ == "gemma2",
               experts = family_ == "mixtral";
    const bool qwen = family_ == "qwen2", biased = qwen || flag("attention_bias");
    const double deviation = number("initializer_range");
    const std::string self = "model.layers.0.self_attn.", mlp = "model.layers.0.mlp.";
    tokens("model.embed_tokens.weight", hidden, padding());
    if (packed) {
      shape(self + "qkv_proj.weight", {(heads + 2 * kv) * width, hidden});
      shape(mlp + "gate_up_proj.weight", {2 * inner, hidden});
    } else {
      shape(self + "q_proj.weight", {heads * width, hidden});
      shape(self + "k_proj.weight", {kv * width, hidden});
      EXPECT_EQ(has_param(self + "q_proj.bias"), biased);
      EXPECT_EQ(has_param(self + "o_proj.bias"), biased && !qwen);
    }
    shape(self + "o_proj.weight", {hidden, heads * width});
    drawn(self + "o_proj.weight", deviation);
    if (experts) {
      const std::string moe = "model.layers.0.block_sparse_moe.";
      shape(moe + "gate.weight", {size("num_local_experts"), hidden});
      shape(fmt::format("{}experts.{}.w1.weight", moe, size("num_local_experts") - 1),
            {inner, hidden});
      for (const Node* node : nodes(graph_, "top_gates"))
        EXPECT_EQ(node->attrs.integer("k"), size("num_experts_per_tok"));
      const bool balanced = flag("output_router_logits");
      EXPECT_EQ(nodes(graph_, "load_balance").size(), balanced ? 1u : 0u);
      if (balanced) {
        EXPECT_EQ(nodes(graph_, "scale").back()->attrs.real("factor"),
                  number("router_aux_loss_coef"));
      }
      value("router_aux_loss_coef");
    } else if (!packed) {
      shape(mlp + "gate_proj.weight", {inner, hidden});
      EXPECT_EQ(has_param(mlp + "gate_proj.bias"), flag("mlp_bias"));
    }
    EXPECT_EQ(has_param("lm_head.weight"), !flag("tie_word_embeddings"));
    norms("rms_norm", number("rms_norm_eps"));
    // Files of older Gemma models have a hidden_act that is not read.
    config_.find("hidden_act");
    activations(activation(gemma ? "hidden_activation" : "hidden_act"), true);
    attention({layers, heads, kv, windows(layers),
               gemma ? 1 / std::sqrt(number("query_pre_attn_scalar")) : 0,
               gemma ? number("attn_logit_softcapping") : 0, number("attention_dropout")});
    if (gemma) {
      ASSERT_EQ(nodes(graph_, "softcap").size(), 1u);
      EXPECT_EQ(nodes(graph_, "softcap")[0]->attrs.real("cap"), number("final_logit_softcapping"));
    }
    if (packed) {
      // The model's code does not read these keys.
      for (const char* key : {"embd_pdrop", "attn_pdrop", "mlp_bias"}) config_.find(key);
      dropouts(std::vector<double>(static_cast<size_t>(2 * layers), number("resid_pdrop")));
    }
    ropes(width, "rope_theta", "partial_rotary_factor", experts ? 1e6 : 1e4, 1);
  }

  void gpt2() {
    const int64_t hidden = size("n_embd"), layers = size("n_layer"), heads = size("n_head");
    tokens("transformer.wte.weight", hidden, -1);
    shape("transformer.wpe.weight", {size("n_positions"), hidden});
    shape("transformer.h.0.mlp.c_fc.weight", {hidden, size_or("n_inner", 4 * hidden)});
    drawn("transformer.h.0.attn.c_attn.weight", number("initializer_range"));
    EXPECT_EQ(has_param("lm_head.weight"), !flag("tie_word_embeddings"));
    norms("layer_norm", number("layer_norm_epsilon"));
    activations(activation("activation_function"), false);
    attention({layers, heads, heads, {}, 0, 0, number("attn_pdrop")});
    std::vector<double> all(static_cast<size_t>(1 + 2 * layers), number("resid_pdrop"));
    all[0] = number("embd_pdrop");
    dropouts(all);
    // GPT-2 ignores pad_token_id: every row of its table has a gradient.
    config_.find("pad_token_id");
  }

  void gpt_neox() {
    const int64_t hidden = size("hidden_size"), layers = size("num_hidden_layers"),
                  heads = size("num_attention_heads");
    tokens("gpt_neox.embed_in.weight", hidden, -1);
    const std::string layer = "gpt_neox.layers.0.";
    shape(layer + "attention.query_key_value.weight", {3 * hidden, hidden});
    EXPECT_EQ(has_param(layer + "attention.query_key_value.bias"), flag("attention_bias"));
    shape(layer + "mlp.dense_h_to_4h.weight", {size("intermediate_size"), hidden});
    drawn(layer + "attention.dense.weight", number("initializer_range"));
    EXPECT_EQ(has_param("embed_out.weight"), !flag("tie_word_embeddings"));
    norms("layer_norm", number("layer_norm_eps"));
    activations(activation("hidden_act"), false);
    attention({layers, heads, heads, {}, 0, 0, number("attention_dropout")});
    dropouts(std::vector<double>(static_cast<size_t>(2 * layers + 1), number("hidden_dropout")));
    // Either both norms of a layer read its input, or the second one reads the result of attention.
    const std::vector<const Node*> norm = nodes(graph_, "layer_norm");
    EXPECT_EQ(norm.at(0)->in[0] == norm.at(1)->in[0], flag("use_parallel_residual"));
    ropes(hidden / heads, "rotary_emb_base", "rotary_pct", 1e4, 0.25);
    // Files that were saved again have both names with equal values.
    for (auto [now, before] :
         {std::pair{"rope_theta", "rotary_emb_base"}, {"partial_rotary_factor", "rotary_pct"}}) {
      if (const Json* again = config_.find(now)) {
        EXPECT_EQ(again->number(), number(before)) << now;
      }
    }
    // Older names, which the model's code does not read.
    for (const char* key : {"pad_token_id", "attention_probs_dropout_prob", "hidden_dropout_prob"})
      config_.find(key);
  }

  void opt() {
    const int64_t hidden = size("hidden_size"), layers = size("num_hidden_layers"),
                  heads = size("num_attention_heads");
    const std::string model = "model.decoder.", layer = model + "layers.0.";
    tokens(model + "embed_tokens.weight", size_or("word_embed_proj_dim", hidden), padding());
    shape(model + "embed_positions.weight", {size("max_position_embeddings") + 2, hidden});
    shape(layer + "fc1.weight", {size("ffn_dim"), hidden});
    drawn(layer + "fc1.weight", number("init_std"));
    EXPECT_EQ(has_param(layer + "fc1.bias"), flag("enable_bias"));
    const bool affine = flag("layer_norm_elementwise_affine"),
               before = flag("do_layer_norm_before");
    EXPECT_EQ(has_param(layer + "final_layer_norm.weight"), affine);
    EXPECT_EQ(has_param("lm_head.weight"), !flag("tie_word_embeddings"));
    const size_t last = before && !flag("_remove_final_layer_norm") ? 1 : 0;
    EXPECT_EQ(nodes(graph_, "layer_norm").size(), static_cast<size_t>(2 * layers) + last);
    norms("layer_norm", 1e-5);
    activations(activation("activation_function"), false);
    attention({layers, heads, heads, {}, 0, 0, number("attention_dropout")});
    dropouts(std::vector<double>(static_cast<size_t>(2 * layers), number("dropout")));
  }

  void bert() {
    const int64_t hidden = size("hidden_size"), layers = size("num_hidden_layers"),
                  heads = size("num_attention_heads");
    const std::string tables = "bert.embeddings.", layer = "bert.encoder.layer.0.";
    EXPECT_EQ(value("position_embedding_type").is_null()
                  ? "absolute"
                  : value("position_embedding_type").string(),
              "absolute");
    tokens(tables + "word_embeddings.weight", hidden, padding());
    shape(tables + "position_embeddings.weight", {size("max_position_embeddings"), hidden});
    shape(tables + "token_type_embeddings.weight", {size("type_vocab_size"), hidden});
    shape(layer + "intermediate.dense.weight", {size("intermediate_size"), hidden});
    drawn(layer + "intermediate.dense.weight", number("initializer_range"));
    EXPECT_EQ(has_param("cls.predictions.decoder.weight"), !flag("tie_word_embeddings"));
    norms("layer_norm", number("layer_norm_eps"));
    activations(activation("hidden_act"), false);
    attention({layers, heads, heads, {}, 0, 0, number("attention_probs_dropout_prob"), false});
    dropouts(
        std::vector<double>(static_cast<size_t>(1 + 2 * layers), number("hidden_dropout_prob")));
  }

  const Record& config_;
  const Json& defaults_;
  std::string family_;
  Graph graph_, trained_;
};

TEST(PublishedConfigs, GraphsHaveTheStatedProperties) {
  const Recording defaults(data_path("hf_defaults.json"), {"families"});
  const Json all = read_json(data_path("hf_configs.json"));
  EXPECT_FALSE(all.object().empty());
  for (const auto& [name, json] : all.object()) {
    SCOPED_TRACE(name);
    const Record config(json, name);
    for (const char* key : kNothing) config.told({key});
    try {
      Published(config, defaults.document()).check();
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

}  // namespace
}  // namespace ds::test::published_configs
