// Reads the rope of a config.json as Transformers 5 understands it.
//
// Each pair of columns of a head is rotated by an angle position * theta^(-2i/d). A scaling changes
// the frequencies for texts that are longer than those in training: "linear" divides all of them by
// a factor, "dynamic" lets theta grow with the length of the text, "llama3" and "yarn" (Peng et
// al., arXiv:2309.00071) divide only the slow ones, with a ramp in between, and "longrope" (Ding et
// al., arXiv:2402.13753) has a factor for each pair. The formulas are in docs/reference/ops.md,
// `rope`; this file only fills RopeOptions. Source: modeling_rope_utils.py.
#include "nn/models/hf_rope.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/json.h"

namespace ds {
namespace {

// The object that describes the scaling, and the old or new key under which it was found, for
// messages.
struct RopeSource {
  // Upper limit of positions and factors, so that nothing computed from them overflows.
  static constexpr double kMost = 1e12;
  HfConfig& config;
  const RopeKeys& keys;
  std::string_view key;
  const Json* object;

  const Json* find(std::string_view name) const {
    const Json* value = object == nullptr ? nullptr : object->find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  double checked(std::string_view name, const Json& value) const {
    if (value.is_number() && value.number() > 0 && value.number() <= kMost) return value.number();
    raise(DS_ERROR_INVALID_ARGUMENT, "key '{}.{}' must be a number > 0 and at most {}, got {}", key,
          name, kMost, value.dump());
  }
  double number(std::string_view name, double otherwise) const {
    const Json* value = find(name);
    return value == nullptr ? otherwise : checked(name, *value);
  }
  double needed(std::string_view name) const {
    if (find(name) != nullptr) return number(name, 0);
    raise(DS_ERROR_INVALID_ARGUMENT, "key '{}.{}' must be given, got none", key, name);
  }
  // Returns a list of exactly `pairs` numbers.
  std::vector<double> numbers(std::string_view name, int64_t pairs) const {
    const Json* value = find(name);
    if (value == nullptr || !value->is_array() ||
        static_cast<int64_t>(value->array().size()) != pairs) {
      raise(DS_ERROR_INVALID_ARGUMENT,
            "key '{}.{}' must have {} numbers, half of the rotated columns, got {}", key, name,
            pairs,
            value == nullptr    ? "none"
            : value->is_array() ? fmt::format("{}", value->array().size())
                                : value->dump());
    }
    std::vector<double> out;
    for (const Json& item : value->array()) out.push_back(checked(name, item));
    return out;
  }
  // Returns the number of positions in training, before scaling. A key next to the object takes
  // precedence over one in it.
  int64_t original() const {
    constexpr std::string_view name = "original_max_position_embeddings";
    int64_t beside = config.size_or(name, 0);
    if (beside > 0) return beside;
    if (find(name) != nullptr) return static_cast<int64_t>(number(name, 0));
    return config.size("max_position_embeddings");
  }
  // Returns the ratio of the positions to those in training, which replaces a `factor` of null.
  double ratio() const {
    return static_cast<double>(config.size("max_position_embeddings")) /
           static_cast<double>(original());
  }
  std::string type() const {
    const Json* value = find("rope_type");
    if (value == nullptr) value = find("type");
    std::string name = value == nullptr     ? "default"
                       : value->is_string() ? value->string()
                                            : value->dump();
    return keys.longrope_only && (name == "su" || name == "yarn") ? "longrope" : name;
  }
  // Records members that the scaling does not have. Transformers reads only those in `known`.
  void note_unread(std::initializer_list<std::string_view> known) const {
    if (object == nullptr) return;
    for (const auto& [name, value] : object->object()) {
      bool expected = name == "rope_type" || name == "type" || name == "rope_theta" ||
                      name == "partial_rotary_factor" || value.is_null() || contains(known, name);
      if (value.is_object()) {
        raise(DS_ERROR_UNSUPPORTED,
              "key '{}.{}' of a {} model must not be an object: libds uses one rope for all layers",
              key, name, config.family());
      }
      if (!expected) config.add_unread(fmt::format("{}.{}", key, name));
    }
  }
};

// Returns the object that describes the scaling, chosen as in Transformers 5: rope_scaling unless
// it is empty, otherwise rope_parameters.
RopeSource rope_source(HfConfig& config, const RopeKeys& keys) {
  const Json* now = config.find("rope_parameters");
  const Json* before = config.find("rope_scaling");
  for (auto [key, value] : {std::pair{"rope_parameters", now}, {"rope_scaling", before}}) {
    if (value == nullptr || value->is_object()) continue;
    raise(DS_ERROR_INVALID_ARGUMENT, "key '{}' must be an object, got {}", key, value->dump());
  }
  bool old = before != nullptr && !before->object().empty();
  return {config, keys, old ? "rope_scaling" : "rope_parameters", old ? before : now};
}

// Returns the number of columns of a head that are rotated, which follows from the partial factor;
// it may be odd.
int64_t read_dims(const RopeSource& source, int64_t width) {
  HfConfig& config = source.config;
  const RopeKeys& keys = source.keys;
  double partial = source.number("partial_rotary_factor", config.positive_or(keys.partial_key, 1));
  if (!keys.partly && partial != 1) {
    raise(DS_ERROR_UNSUPPORTED, "key 'partial_rotary_factor' of a {} model must be 1, got {}",
          config.family(), partial);
  }
  auto dims = static_cast<int64_t>(static_cast<double>(width) * std::min(partial, 1.0));
  if (partial > 1 || dims < 1 || dims + dims % 2 > width) {
    raise(DS_ERROR_INVALID_ARGUMENT, "key '{}' must rotate 1 to {} of a head's {} columns, got {}",
          keys.partial_key, width / 2 * 2, width, partial);
  }
  return dims;
}

double read_theta(const RopeSource& source) {
  return source.number("rope_theta", source.config.positive(source.keys.theta_key));
}

void read_llama3(const RopeSource& source, RopeOptions& rope) {
  source.note_unread(
      {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  rope.factor = source.needed("factor");
  rope.low = source.needed("low_freq_factor");
  // If high <= low, Transformers warns, and no pair lies on the ramp. The smallest number above
  // `low` has the same effect and avoids a division by 0.
  rope.high = std::max(source.needed("high_freq_factor"), std::nextafter(rope.low, 2 * rope.low));
  rope.original = source.original();
}

void read_yarn(const RopeSource& source, RopeOptions& rope) {
  source.note_unread({"factor", "beta_fast", "beta_slow", "original_max_position_embeddings",
                      "attention_factor", "mscale", "mscale_all_dim", "truncate"});
  // A "factor" of null requests the ratio of the positions; a missing key is an error.
  bool derived = source.object->find("factor") != nullptr && source.find("factor") == nullptr;
  rope.factor = derived ? source.ratio() : source.needed("factor");
  rope.low = source.number("beta_slow", 1);
  rope.high = source.number("beta_fast", 32);
  rope.original = source.original();
  const Json* truncate = source.find("truncate");
  if (truncate != nullptr && !truncate->is_bool()) {
    raise(DS_ERROR_INVALID_ARGUMENT, "key '{}.truncate' must be true or false, got {}", source.key,
          truncate->dump());
  }
  rope.truncate = truncate == nullptr || truncate->boolean();
  // The magnitude for a factor s is 0.1 m ln(s) + 1 (YaRN). Models with two values of m, such as
  // DeepSeek's, divide the magnitude for one by that for the other.
  auto grown = [&](std::string_view name) {
    return rope.factor <= 1 ? 1 : 1 + 0.1 * source.number(name, 1) * std::log(rope.factor);
  };
  bool both = source.find("mscale") != nullptr && source.find("mscale_all_dim") != nullptr;
  if (both) rope.magnitude = grown("mscale") / grown("mscale_all_dim");
  rope.magnitude = source.number("attention_factor", rope.magnitude);
}

// Reads longrope (arXiv:2402.13753). `pairs` is the number of rotated pairs of columns.
void read_longrope(const RopeSource& source, int64_t pairs, RopeOptions& rope) {
  source.note_unread({"short_factor", "long_factor", "factor", "attention_factor",
                      "original_max_position_embeddings"});
  rope.original = source.original();
  rope.factors = source.numbers("short_factor", pairs);
  rope.long_factors = source.numbers("long_factor", pairs);
  require(rope.original > 1, "key 'original_max_position_embeddings' must be at least 2, got {}",
          rope.original);
  // The default magnitude is sqrt(1 + ln(factor) / ln(original)).
  double factor = source.find("factor") != nullptr ? source.number("factor", 0) : source.ratio();
  double root = std::log(static_cast<double>(rope.original));
  double usual = factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / root);
  rope.magnitude = source.number("attention_factor", usual);
}

// Reads the dynamic scaling: beyond max_position_embeddings, theta grows with the text by a power
// of d / (d - 2).
void read_dynamic(const RopeSource& source, int64_t dims, RopeOptions& rope) {
  source.note_unread({"factor"});
  rope.factor = source.needed("factor");
  rope.original = source.config.size("max_position_embeddings");
  require(dims != 2, "rope_type 'dynamic' needs more than 2 rotated columns in each head, got {}",
          dims);
  rope.power = static_cast<double>(dims) / static_cast<double>(dims - 2);
}

// Makes the number of rotated columns even. For an odd number d, Transformers computes (d + 1) / 2
// frequencies theta^(-2i/d), which rotate d + 1 columns. These are the frequencies of d + 1 columns
// with theta^((d + 1) / d) in place of theta. For yarn this is not possible, because its ramp has
// only (d - 1) / 2 values.
void make_even(const RopeSource& source, int64_t dims, RopeOptions& rope) {
  if (dims % 2 == 0) return;
  if (rope.scaling == "yarn") {
    raise(DS_ERROR_INVALID_ARGUMENT,
          "key '{}' must leave an even number of columns for yarn, got {}", source.keys.partial_key,
          dims);
  }
  double wider = static_cast<double>(dims + 1) / static_cast<double>(dims);
  rope.theta = std::pow(rope.theta, wider);
  rope.power *= wider;
}

}  // namespace

RopeOptions read_rope(HfConfig& config, int64_t width, const RopeKeys& keys) {
  RopeSource source = rope_source(config, keys);
  RopeOptions rope;
  rope.theta = read_theta(source);
  int64_t dims = read_dims(source, width), even = dims + dims % 2;
  rope.dims = even == width ? 0 : even;
  std::string type = source.type();
  bool known = !keys.longrope_only || type == "default" || type == "longrope";
  if (known && type == "default") {
    source.note_unread({});
  } else if (known && type == "linear") {
    source.note_unread({"factor"});
    rope.factor = source.needed("factor");
  } else if (known && type == "llama3") {
    read_llama3(source, rope);
  } else if (known && type == "yarn") {
    read_yarn(source, rope);
  } else if (known && type == "longrope") {
    read_longrope(source, even / 2, rope);
  } else if (known && type == "dynamic") {
    read_dynamic(source, dims, rope);
  } else {
    raise(DS_ERROR_UNSUPPORTED, "key '{}.rope_type' of a {} model must be {}, got '{}'", source.key,
          config.family(),
          keys.longrope_only ? "default or longrope"
                             : "default, linear, dynamic, llama3, yarn or longrope",
          type);
  }
  if (type != "default") rope.scaling = type;
  make_even(source, dims, rope);
  return rope;
}

}  // namespace ds
