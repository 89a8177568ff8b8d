// Keys of config.json and of the metadata that describe a model. Most of them are rows of the
// family's table; this file has the others, and the checks of options that llama.cpp fixes.
#include "checkpoint/gguf/model_keys.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "checkpoint/gguf/families.h"
#include "checkpoint/gguf/rope_keys.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "io/gguf_values.h"
#include "nn/models/hf_config.h"

namespace ds {
namespace {

// The largest size that a key may state, as in config.json.
constexpr int64_t kMostSize = 1 << 28;
// In Gemma 2 the scale of the scores is 1 / sqrt(head_dim), except that the model of 46 layers
// divides by the square root of hidden_size / heads.
constexpr int64_t kGemma27bLayers = 46;

int64_t gemma_scale(int64_t layers, int64_t hidden, int64_t heads, int64_t width) {
  return layers == kGemma27bLayers ? hidden / heads : width;
}

[[noreturn]] void refuse_value(std::string_view key, std::string_view wanted,
                               std::string_view got) {
  raise(DS_ERROR_UNSUPPORTED, "key '{}' must be {} in a GGUF file, got {}", key, wanted, got);
}

void check_gemma2(const HfConfig& config, int64_t width) {
  const int64_t scale = gemma_scale(config.size("num_hidden_layers"), config.size("hidden_size"),
                                    config.size("num_attention_heads"), width);
  const double got = config.positive("query_pre_attn_scalar");
  if (got != static_cast<double>(scale))
    refuse_value("query_pre_attn_scalar", fmt::format("{}", scale), fmt::format("{}", got));
  const Json* types = config.find("layer_types");
  for (size_t i = 0; types != nullptr && i < types->array().size(); ++i) {
    const std::string& type = types->array()[i].string();
    const char* wanted = i % 2 == 0 ? "sliding_attention" : "full_attention";
    if (type != wanted) refuse_value("layer_types", wanted, type);
  }
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window"}) {
    if (config.find(key) == nullptr) refuse_value(key, "given", "none");
  }
}

// Throws for options that llama.cpp does not compute.
void check_options(const HfConfig& config, const GgufFamily& family, int64_t width) {
  const std::string activation = config.text(family.activation_key);
  if (activation != family.activation)
    refuse_value(family.activation_key, family.activation, activation);
  if (family.model_type == "gemma2") check_gemma2(config, width);
  if (family.model_type == "qwen3" && config.flag("attention_bias"))
    refuse_value("attention_bias", "false", "true");
  if (family.model_type == "gpt2") {
    if (!config.flag("scale_attn_weights")) refuse_value("scale_attn_weights", "true", "false");
    if (config.flag("scale_attn_by_inverse_layer_idx"))
      refuse_value("scale_attn_by_inverse_layer_idx", "false", "true");
  }
  // llama.cpp reads the window of phi3, but does not apply it.
  const bool own_window = family.model_type == "gemma2";
  const bool qwen = family.architecture.starts_with("qwen");
  if (own_window || config.size_or("sliding_window", 0) == 0 ||
      (qwen && !config.flag("use_sliding_window")))
    return;
  if (config.size("sliding_window") < config.size("max_position_embeddings"))
    log_line(LogLevel::warning,
             fmt::format("llama.cpp has no sliding window for {}: with more than {} tokens its "
                         "results will differ",
                         family.model_type, config.size("sliding_window")));
}

int64_t head_width(const HfConfig& config, const GgufFamily& family) {
  const char* hidden = family.model_type == "gpt2" ? "n_embd" : "hidden_size";
  return config.size_or("head_dim", config.size(hidden) / config.size(family.heads));
}

// Returns the value of a row's key in the metadata, or nothing if config.json has no value for it.
std::optional<GgufValue> value_of(const HfConfig& config, const GgufKey& key) {
  if (key.kind == GgufKind::flag) return GgufValue::flag(config.flag(key.folder));
  if (config.find(key.folder) == nullptr) {
    if (key.folder == "n_inner") return GgufValue::u32(4 * config.size("n_embd"));
    if (key.folder == "num_key_value_heads")
      return GgufValue::u32(config.size("num_attention_heads"));
    // llama.cpp tells Phi-4 from other models of the architecture by this window.
    if (key.folder == "sliding_window") return GgufValue::u32(0);
    return std::nullopt;
  }
  if (key.kind == GgufKind::f32) return GgufValue::f32(config.positive(key.folder));
  return GgufValue::u32(config.size(key.folder));
}

// Returns the extent of a tensor, which must exist.
int64_t extent_of(const GgufHeader& header, const std::string& name, size_t dimension) {
  const GgufTensor* tensor = header.find(name);
  if (tensor == nullptr) raise(DS_ERROR_CORRUPT, "tensor '{}' is missing", TensorName(name));
  if (tensor->shape.size() <= dimension)
    raise(DS_ERROR_CORRUPT, "tensor '{}' must have {} extents, got {}", TensorName(name),
          dimension + 1, tensor->shape.size());
  return tensor->shape[dimension];
}

// Sets the members of config.json that the family's table lists.
void read_rows(const GgufHeader& header, const GgufFamily& family, Json& config) {
  for (const GgufKey& row : family.keys) {
    const std::string key = fmt::format("{}.{}", family.architecture, row.file);
    if (header.value(key) == nullptr) continue;
    if (row.kind == GgufKind::flag) {
      config.set(row.folder, *gguf_flag(header, key));
    } else if (row.kind == GgufKind::f32) {
      config.set(row.folder, checked_gguf_positive(key, *gguf_number(header, key)));
    } else if (const int64_t value = *gguf_integer(header, key);
               value == 0 && row.folder == "sliding_window") {
      config.set(row.folder, Json());
    } else if (row.folder == "num_local_experts" || row.folder == "num_experts_per_tok") {
      if (family.model_type == "mixtral")
        config.set(row.folder, checked_gguf_integer(key, value, 1, kMostSize));
    } else {
      // Every layer has tensors, so a number of layers beyond theirs is damage.
      const bool layers = row.file == "block_count";
      const int64_t most = layers ? std::ssize(header.tensors) : kMostSize;
      config.set(row.folder, checked_gguf_integer(key, value, 1, most));
    }
  }
}

// Sets the biases that exist in the file, for families whose config.json has keys for them.
void read_biases(const GgufHeader& header, const GgufFamily& family, Json& config) {
  if (family.model_type != "llama") return;
  config.set("attention_bias", header.find("blk.0.attn_q.bias") != nullptr);
  config.set("mlp_bias", header.find("blk.0.ffn_gate.bias") != nullptr);
}

int64_t member_integer(const Json& config, std::string_view key, const GgufFamily& family) {
  const Json* value = config.find(key);
  if (value != nullptr) return value->integer();
  for (const GgufKey& row : family.keys) {
    if (row.folder == key)
      raise(DS_ERROR_CORRUPT, "key '{}.{}' is missing", family.architecture, row.file);
  }
  raise(DS_ERROR_INTERNAL, "no row for key '{}'", key);
}

void read_gemma2(const GgufFamily& family, int64_t width, Json& config) {
  config.set("query_pre_attn_scalar",
             gemma_scale(member_integer(config, "num_hidden_layers", family),
                         member_integer(config, "hidden_size", family),
                         member_integer(config, family.heads, family), width));
}

// Throws for a file that is not one whole model.
void check_kind(const GgufHeader& header) {
  const std::string kind = gguf_text(header, "general.type").value_or("model");
  if (kind != "model")
    raise(DS_ERROR_UNSUPPORTED, "key 'general.type' must be model, got '{}'{}", kind,
          kind == "adapter" ? ": `libds convert` makes a folder of an adapter (--like BASE)" : "");
  const int64_t parts = gguf_integer(header, "split.count").value_or(1);
  if (parts > 1)
    raise(DS_ERROR_UNSUPPORTED,
          "key 'split.count' must be 1, got {}: join the parts by `llama-gguf-split --merge`",
          parts);
}

// Throws if keys and values of a head have another width than `width`.
void check_widths(const GgufHeader& header, const GgufFamily& family, int64_t width) {
  for (const char* name : {"attention.key_length", "attention.value_length"}) {
    const std::string key = fmt::format("{}.{}", family.architecture, name);
    if (const auto value = gguf_integer(header, key); value && *value != width)
      raise(DS_ERROR_UNSUPPORTED, "key '{}' must be {}, the width of a head, got {}", key, width,
            *value);
  }
}

}  // namespace

GgufModelKeys gguf_model_keys(const Json& document) {
  const GgufFamily& family = gguf_family(document);
  const HfConfig config(document);
  const int64_t width = head_width(config, family);
  check_options(config, family, width);
  GgufModelKeys out;
  const std::string prefix = std::string(family.architecture) + ".";
  for (const GgufKey& key : family.keys) {
    if (key.folder.find("expert") != key.folder.npos && family.model_type != "mixtral") continue;
    if (auto value = value_of(config, key))
      out.metadata.emplace_back(prefix + std::string(key.file), std::move(*value));
  }
  if (config.find("head_dim") != nullptr && family.model_type != "phi3")
    out.metadata.emplace_back(prefix + "attention.value_length", GgufValue::u32(width));
  if (family.architecture == "llama")
    out.metadata.emplace_back(prefix + "vocab_size", GgufValue::u32(config.size("vocab_size")));
  if (family.model_type != "gpt2") add_rope_keys(config, family, width, out);
  return out;
}

Json gguf_config(const GgufHeader& header, const ReadFactors& read) {
  check_kind(header);
  const GgufFamily& family = gguf_family(header);
  const std::string causal = std::string(family.architecture) + ".attention.causal";
  if (!gguf_flag(header, causal).value_or(true))
    raise(DS_ERROR_UNSUPPORTED, "key '{}' must be true, got false", causal);
  Json config = Json::Object{{"architectures", Json::Array{std::string(family.class_name)}},
                             {"model_type", std::string(family.model_type)}};
  read_rows(header, family, config);
  config.set("vocab_size", extent_of(header, "token_embd.weight", 0));
  config.set(family.activation_key, std::string(family.activation));
  config.set("tie_word_embeddings", header.find("output.weight") == nullptr);
  read_biases(header, family, config);
  const bool gpt2 = family.model_type == "gpt2";
  const int64_t hidden = member_integer(config, gpt2 ? "n_embd" : "hidden_size", family);
  const int64_t heads = member_integer(config, family.heads, family);
  const Json* given = config.find("head_dim");
  const int64_t width = given ? given->integer() : hidden / heads;
  if (width < 1)
    raise(DS_ERROR_CORRUPT, "a head must have at least 1 column, got {} heads for {} columns",
          heads, hidden);
  check_widths(header, family, width);
  if (gpt2) {
    config.set("n_ctx", member_integer(config, "n_positions", family));
    return config;
  }
  if (config.find("num_key_value_heads") == nullptr && family.model_type != "gpt_neox")
    config.set("num_key_value_heads", heads);
  read_rope_keys(header, family, width, read, config);
  if (family.model_type == "gemma2") read_gemma2(family, width, config);
  return config;
}

}  // namespace ds
