// The rope in both formats. A GGUF file has the base of the frequencies and, for linear and yarn
// scaling, a factor. For llama3 and longrope it has tensors of factors by which the frequencies are
// divided.
#include "checkpoint/gguf/rope_keys.h"

#include <fmt/core.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "io/gguf_values.h"

namespace ds {
namespace {

constexpr const char* kFrequencies = "rope_freqs.weight";
constexpr const char *kLongFactors = "rope_factors_long.weight",
                     *kShortFactors = "rope_factors_short.weight";

// The scaling "llama3": frequencies of waves shorter than original / high are kept, those longer
// than original / low are divided by the factor, and there is a ramp in between. Only the ratios of
// low, high and original matter.
struct Llama3Scaling {
  double factor = 8, low = 1, high = 4, original = 8192;
};

// Returns the divisors of the frequencies of `width` / 2 pairs.
std::vector<float> llama3_factors(const Llama3Scaling& s, double theta, int64_t width) {
  std::vector<float> out;
  for (int64_t i = 0; i < width; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(width);
    const double wave = 2 * std::numbers::pi * std::pow(theta, exponent);
    double divisor = 1;
    if (wave > s.original / s.low) {
      divisor = s.factor;
    } else if (wave >= s.original / s.high) {
      const double smooth = (s.original / wave - s.low) / (s.high - s.low);
      divisor = 1 / ((1 - smooth) / s.factor + smooth);
    }
    out.push_back(static_cast<float>(divisor));
  }
  return out;
}

// The object of config.json that describes the rope, or null, and its members.
struct RopeObject {
  const HfConfig& config;
  const Json* object;

  explicit RopeObject(const HfConfig& from) : config(from), object(from.find("rope_scaling")) {
    if (object == nullptr || object->object().empty()) object = from.find("rope_parameters");
  }
  const Json* find(std::string_view key) const {
    const Json* value = object ? object->find(key) : nullptr;
    return value && !value->is_null() ? value : nullptr;
  }
  std::string type() const {
    const Json* value = find("rope_type") ? find("rope_type") : find("type");
    return value ? value->string() : "default";
  }
  double number(std::string_view key, double otherwise) const {
    const Json* value = find(key);
    return value ? value->number() : otherwise;
  }
  double needed(std::string_view key) const {
    if (find(key)) return number(key, 0);
    raise(DS_ERROR_INVALID_ARGUMENT, "key 'rope_scaling.{}' must be given, got none", key);
  }
  double original() const {
    constexpr std::string_view name = "original_max_position_embeddings";
    const auto beside = static_cast<double>(config.size_or(name, 0));
    return beside > 0 ? beside
                      : number(name, static_cast<double>(config.size("max_position_embeddings")));
  }
  // Throws for a member that the format cannot express.
  void refuse(std::string_view key) const {
    if (const Json* value = find(key))
      raise(DS_ERROR_UNSUPPORTED,
            "key 'rope_scaling.{}' cannot be expressed in a GGUF file, got {}", key, value->dump());
  }
  std::vector<float> numbers(std::string_view key) const {
    const Json* value = find(key);
    if (value == nullptr)
      raise(DS_ERROR_INVALID_ARGUMENT, "key 'rope_scaling.{}' must be given, got none", key);
    std::vector<float> out;
    for (const Json& item : value->array()) out.push_back(static_cast<float>(item.number()));
    return out;
  }
};

void add_yarn(const RopeObject& rope, const std::string& prefix, GgufMetadata& out) {
  for (const char* key : {"attention_factor", "mscale", "mscale_all_dim", "truncate"})
    rope.refuse(key);
  out.emplace_back(prefix + "rope.scaling.factor", GgufValue::f32(rope.needed("factor")));
  out.emplace_back(prefix + "rope.scaling.original_context_length",
                   GgufValue::u32(static_cast<int64_t>(rope.original())));
  for (const char* key : {"beta_fast", "beta_slow"}) {
    if (rope.find(key))
      out.emplace_back(prefix + "rope.scaling.yarn_" + key, GgufValue::f32(rope.number(key, 0)));
  }
}

constexpr const char* kAttentionFactor = "rope.scaling.attn_factor";

// Returns longrope's default magnitude, sqrt(1 + ln(s) / ln(original)) for s times as many
// positions.
double longrope_magnitude(double positions, double original) {
  const double scale = positions / original;
  return scale > 1 ? std::sqrt(1 + std::log(scale) / std::log(original)) : 1;
}

void add_longrope(const RopeObject& rope, const std::string& prefix, GgufModelKeys& out) {
  rope.refuse("attention_factor");
  rope.refuse("factor");
  const auto positions = static_cast<double>(rope.config.size("max_position_embeddings"));
  out.metadata.emplace_back(prefix + kAttentionFactor,
                            GgufValue::f32(longrope_magnitude(positions, rope.original())));
  out.factors.emplace_back(kLongFactors, rope.numbers("long_factor"));
  out.factors.emplace_back(kShortFactors, rope.numbers("short_factor"));
}

// Returns config.json's key of the share of a head's columns that are rotated, or "" if all are.
std::string_view partial_key(const GgufFamily& family) {
  return family.model_type == "phi3"       ? "partial_rotary_factor"
         : family.model_type == "gpt_neox" ? "rotary_pct"
                                           : "";
}

Json llama3_object(const std::string& name, const std::vector<float>& stored, double theta) {
  Llama3Scaling scaling;
  scaling.factor = stored.empty() ? 1 : static_cast<double>(stored.back());
  const std::vector<float> usual =
      llama3_factors(scaling, theta, 2 * static_cast<int64_t>(stored.size()));
  for (size_t i = 0; i < stored.size(); ++i) {
    if (std::abs(stored[i] - usual[i]) <= 1e-4f * usual[i]) continue;
    raise(DS_ERROR_UNSUPPORTED,
          "tensor '{}' must have the factors of llama3's scaling by {} from {} positions, got {} "
          "in place of {} for pair {}",
          TensorName(name), scaling.factor, scaling.original, stored[i], usual[i], i);
  }
  return Json::Object{{"rope_type", "llama3"},
                      {"factor", scaling.factor},
                      {"low_freq_factor", scaling.low},
                      {"high_freq_factor", scaling.high},
                      {"original_max_position_embeddings", static_cast<int64_t>(scaling.original)}};
}

Json factor_list(const std::vector<float>& factors) {
  Json::Array out;
  for (float factor : factors) out.emplace_back(static_cast<double>(factor));
  return out;
}

std::optional<double> positive_of(const GgufHeader& header, const std::string& key) {
  const std::optional<double> value = gguf_number(header, key);
  return value ? std::optional(checked_gguf_positive(key, *value)) : std::nullopt;
}

// Returns the factor of positions. rope.scale_linear is its name in older files.
double scaling_factor(const GgufHeader& header, const std::string& prefix) {
  const std::optional<double> factor = positive_of(header, prefix + "rope.scaling.factor");
  return factor ? *factor : positive_of(header, prefix + "rope.scale_linear").value_or(1);
}

// The magnitude is given in config.json only if it is not the usual one.
Json read_longrope(const GgufHeader& header, const std::string& prefix, const Json& config,
                   const ReadFactors& read) {
  Json out = Json::Object{{"type", "longrope"},
                          {"long_factor", factor_list(read(kLongFactors))},
                          {"short_factor", factor_list(read(kShortFactors))}};
  const Json* original = config.find("original_max_position_embeddings");
  const double positions = config.at("max_position_embeddings").number(),
               usual = longrope_magnitude(positions, original ? original->number() : positions),
               given = positive_of(header, prefix + kAttentionFactor).value_or(1);
  if (std::abs(given - usual) > 1e-5 * usual) out.set("attention_factor", given);
  return out;
}

// Returns the object rope_scaling, or null if the file scales nothing.
Json read_scaling(const GgufHeader& header, const std::string& prefix, double theta,
                  const Json& config, const ReadFactors& read) {
  if (header.find(kFrequencies)) return llama3_object(kFrequencies, read(kFrequencies), theta);
  if (header.find(kLongFactors)) return read_longrope(header, prefix, config, read);
  const std::string key = prefix + "rope.scaling.type", attention = prefix + kAttentionFactor;
  const double factor = scaling_factor(header, prefix);
  // As in llama.cpp, a factor without a type is linear.
  const std::string type = gguf_text(header, key).value_or(factor == 1 ? "none" : "linear");
  const double magnitude = positive_of(header, attention).value_or(1);
  if (magnitude != 1 && type != "yarn")
    raise(DS_ERROR_UNSUPPORTED, "key '{}' must be 1 without yarn, got {}", attention, magnitude);
  if (type == "none") return {};
  if (type != "linear" && type != "yarn")
    raise(DS_ERROR_UNSUPPORTED, "key '{}' must be none, linear or yarn, got '{}'", key, type);
  Json out = Json::Object{{"rope_type", type}};
  out.set("factor", factor);
  if (type == "linear") return out;
  if (magnitude != 1) out.set("attention_factor", magnitude * (1 + 0.1 * std::log(factor)));
  const std::string original = prefix + "rope.scaling.original_context_length";
  if (auto value = gguf_integer(header, original))
    out.set("original_max_position_embeddings",
            checked_gguf_integer(original, *value, 1, INT32_MAX));
  for (const char* name : {"beta_fast", "beta_slow"}) {
    if (auto value = positive_of(header, prefix + "rope.scaling.yarn_" + name))
      out.set(name, *value);
  }
  return out;
}

}  // namespace

void add_rope_keys(const HfConfig& config, const GgufFamily& family, int64_t width,
                   GgufModelKeys& out) {
  const RopeObject rope(config);
  const std::string prefix = std::string(family.architecture) + ".", type = rope.type();
  const std::string_view partial = partial_key(family);
  const char* theta_key = family.model_type == "gpt_neox" ? "rotary_emb_base" : "rope_theta";
  const double theta = rope.number("rope_theta", config.positive(theta_key));
  out.metadata.emplace_back(prefix + "rope.freq_base", GgufValue::f32(theta));
  if (family.architecture == "llama" || !partial.empty()) {
    const double share =
        partial.empty() ? 1 : rope.number("partial_rotary_factor", config.positive_or(partial, 1));
    const auto rotated = static_cast<int64_t>(share * static_cast<double>(width));
    require(rotated % 2 == 0, "an even number of columns must be rotated in a GGUF file, got {}",
            rotated);
    out.metadata.emplace_back(prefix + "rope.dimension_count", GgufValue::u32(rotated));
  }
  if (type == "default") return;
  if (type == "linear" || type == "yarn") {
    out.metadata.emplace_back(prefix + "rope.scaling.type", GgufValue::text(type));
    if (type == "yarn") return add_yarn(rope, prefix, out.metadata);
    out.metadata.emplace_back(prefix + "rope.scaling.factor",
                              GgufValue::f32(rope.needed("factor")));
  } else if (type == "llama3" && family.architecture == "llama") {
    const Llama3Scaling scaling{rope.needed("factor"), rope.needed("low_freq_factor"),
                                rope.needed("high_freq_factor"), rope.original()};
    out.factors.emplace_back(kFrequencies, llama3_factors(scaling, theta, width));
  } else if ((type == "longrope" || type == "su") && family.model_type == "phi3") {
    add_longrope(rope, prefix, out);
  } else {
    raise(DS_ERROR_UNSUPPORTED, "a GGUF file of architecture {} has no rope_type '{}'",
          family.architecture, type);
  }
}

void read_rope_keys(const GgufHeader& header, const GgufFamily& family, int64_t width,
                    const ReadFactors& read, Json& config) {
  const std::string prefix = std::string(family.architecture) + ".";
  const double theta = positive_of(header, prefix + "rope.freq_base").value_or(10000);
  config.set(family.model_type == "gpt_neox" ? "rotary_emb_base" : "rope_theta", theta);
  const std::string key = prefix + "rope.dimension_count";
  const int64_t rotated =
      checked_gguf_integer(key, gguf_integer(header, key).value_or(width), 1, width);
  if (const std::string_view partial = partial_key(family); !partial.empty()) {
    config.set(partial, static_cast<double>(rotated) / static_cast<double>(width));
  } else if (rotated != width) {
    raise(DS_ERROR_UNSUPPORTED, "key '{}' must be {}, the width of a head, got {}", key, width,
          rotated);
  }
  if (Json scaling = read_scaling(header, prefix, theta, config, read); !scaling.is_null())
    config.set("rope_scaling", std::move(scaling));
}

}  // namespace ds
