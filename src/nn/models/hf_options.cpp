#include "nn/models/hf_options.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/error.h"

namespace ds {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr double kMaxParameters = 1e13;

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> activations{
    {{"gelu", "gelu_erf"},
     {"gelu_python", "gelu_erf"},
     {"gelu_new", "gelu_tanh"},
     {"gelu_fast", "gelu_tanh"},
     {"gelu_pytorch_tanh", "gelu_tanh"},
     {"relu", "relu"},
     {"silu", "silu"},
     {"swish", "silu"}}};

// The object that describes the scaling, under its old or new key, and what it is called in messages.
struct RopeSource {
  static constexpr double kMost = 1e12;  // positions and factors that fit everything computed from them
  HfConfig& config;
  std::string_view key;
  const Json* object;

  const Json* find(std::string_view name) const {
    const Json* value = object == nullptr ? nullptr : object->find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  double number(std::string_view name, double otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (value->is_number() && value->number() > 0 && value->number() <= kMost) return value->number();
    raise(DS_ERROR_INVALID_ARGUMENT, "key '{}.{}' must be a number > 0 and at most {}, got {}", key, name,
          kMost, value->dump());
  }
  double needed(std::string_view name) const {
    if (find(name) != nullptr) return number(name, 0);
    raise(DS_ERROR_INVALID_ARGUMENT, "key '{}.{}' must be given, got none", key, name);
  }
  std::string type() const {
    const Json* value = find("rope_type");
    if (value == nullptr) value = find("type");
    return value == nullptr ? "default" : value->is_string() ? value->string() : value->dump();
  }
  // Refuses members that `known` does not name.
  void check_members(std::initializer_list<std::string_view> known) const {
    if (object == nullptr) return;
    for (const auto& [name, value] : object->object()) {
      bool expected = name == "rope_type" || name == "type" || name == "rope_theta" ||
                      name == "partial_rotary_factor" || value.is_null() ||
                      std::find(known.begin(), known.end(), name) != known.end();
      if (expected) continue;
      raise(DS_ERROR_UNSUPPORTED, "key '{}.{}' = {} is not supported for rope_type '{}'", key, name,
            value.dump(), type());
    }
  }
};

// Each parameter has at most HfConfig's sizes; together they are still to be counted in bytes.
void check_total(const Graph& graph) {
  double total = 0;
  for (const Parameter& param : graph.params) {
    total += static_cast<double>(graph.type(param.value).shape.numel(1));
  }
  require(total <= kMaxParameters, "the model must have at most {} parameters, got {}", kMaxParameters,
          total);
}

void read_llama3(const RopeSource& source, Rope& rope) {
  source.check_members({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"});
  rope.factor = source.needed("factor");
  rope.low = source.needed("low_freq_factor");
  rope.high = source.needed("high_freq_factor");
  rope.original = static_cast<int64_t>(source.needed("original_max_position_embeddings"));
}

void read_yarn(const RopeSource& source, Rope& rope) {
  source.check_members({"factor", "beta_fast", "beta_slow", "original_max_position_embeddings",
                        "attention_factor", "truncate"});
  rope.factor = source.needed("factor");
  rope.low = source.number("beta_slow", 1);
  rope.high = source.number("beta_fast", 32);
  int64_t positions = source.config.size_or("max_position_embeddings", 0);
  rope.original =
      static_cast<int64_t>(source.number("original_max_position_embeddings", static_cast<double>(positions)));
  const Json* truncate = source.find("truncate");
  if (truncate != nullptr && truncate->dump() != "true") {
    raise(DS_ERROR_UNSUPPORTED, "key '{}.truncate' must be true, got {}", source.key, truncate->dump());
  }
  double usual = rope.factor <= 1 ? 1 : 1 + 0.1 * std::log(rope.factor);
  double factor = source.number("attention_factor", usual);
  if (std::fabs(factor - usual) > 1e-9) {
    raise(DS_ERROR_UNSUPPORTED, "key '{}.attention_factor' must be 1 + 0.1 ln factor = {}, got {}",
          source.key, usual, factor);
  }
}

}  // namespace

int64_t read_layers(HfConfig& config, std::string_view key) {
  int64_t layers = config.size(key);
  if (layers > kMaxLayers) config.refuse(key, fmt::format("at most {}", kMaxLayers));
  return layers;
}

std::string read_activation(HfConfig& config, std::string_view key, const std::string& otherwise) {
  std::string name = config.text_or(key, otherwise), known;
  for (const auto& [theirs, ours] : activations) {
    if (theirs == name) return std::string(ours);
    known += (known.empty() ? "" : ", ") + std::string(theirs);
  }
  config.refuse(key, "one of " + known);
}

Rope read_rope(HfConfig& config, int64_t width, double partial, std::string_view theta_key,
               std::string_view partial_key) {
  const Json* now = config.find("rope_parameters");
  const Json* before = config.find("rope_scaling");
  RopeSource source{config, now != nullptr ? "rope_parameters" : "rope_scaling",
                    now != nullptr ? now : before};
  if (source.object != nullptr && !source.object->is_object()) {
    raise(DS_ERROR_INVALID_ARGUMENT, "key '{}' must be an object, got {}", source.key, source.object->dump());
  }
  Rope rope;
  rope.theta = source.number("rope_theta", config.positive_or(theta_key, 10000));
  partial = source.number("partial_rotary_factor", config.positive_or(partial_key, partial));
  int64_t dims = static_cast<int64_t>(static_cast<double>(width) * std::min(partial, 1.0));
  if (partial > 1 || dims < 2 || dims % 2 != 0) {
    raise(DS_ERROR_INVALID_ARGUMENT, "key '{}' must leave an even number of a head's {} columns, got {}",
          partial_key, width, partial);
  }
  rope.dims = dims == width ? 0 : dims;
  std::string type = source.type();
  if (type == "default") {
    source.check_members({});
    return rope;
  }
  rope.scaling = type;
  if (type == "linear") {
    source.check_members({"factor"});
    rope.factor = source.needed("factor");
  } else if (type == "llama3") {
    read_llama3(source, rope);
  } else if (type == "yarn") {
    read_yarn(source, rope);
  } else {
    raise(DS_ERROR_UNSUPPORTED, "key '{}.rope_type' must be default, linear, llama3 or yarn, got '{}'",
          source.key, type);
  }
  return rope;
}

std::vector<int64_t> read_windows(HfConfig& config, int64_t window, const std::vector<bool>& sliding) {
  std::vector<int64_t> windows;
  for (bool slides : sliding) windows.push_back(slides ? window : 0);
  const Json* types = config.find("layer_types");
  if (types == nullptr) return windows;
  if (!types->is_array() || types->array().size() != sliding.size()) {
    raise(DS_ERROR_INVALID_ARGUMENT, "key 'layer_types' must have one entry for each of {} layers, got {}",
          sliding.size(), types->is_array() ? fmt::format("{}", types->array().size()) : types->kind());
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    const Json& type = types->array()[i];
    bool full = type.is_string() && type.string() == "full_attention";
    bool slides = type.is_string() && type.string() == "sliding_attention";
    if (!full && !slides) {
      raise(DS_ERROR_UNSUPPORTED, "key 'layer_types' must hold full_attention and sliding_attention, got {}",
            type.dump());
    }
    if (slides && window == 0) {
      raise(DS_ERROR_INVALID_ARGUMENT, "key 'sliding_window' must be given when layer_types has {}, got none",
            type.dump());
    }
    windows[i] = slides ? window : 0;
  }
  return windows;
}

int64_t read_kv_heads(HfConfig& config, int64_t heads) {
  int64_t groups = config.size_or("num_key_value_heads", heads);
  require(heads % groups == 0, "key 'num_key_value_heads' must divide num_attention_heads {}, got {}", heads,
          groups);
  return groups;
}

int64_t read_head_width(HfConfig& config, int64_t hidden, int64_t heads, int64_t otherwise) {
  int64_t width = config.size_or("head_dim", otherwise);
  if (width > 0) return width;
  check_heads(hidden, heads);
  return hidden / heads;
}

void check_heads(int64_t hidden, int64_t heads) {
  require(hidden % heads == 0, "key 'hidden_size' must be a multiple of num_attention_heads {}, got {}",
          heads, hidden);
}

HfModel begin_model(HfConfig& config, int64_t bound) {
  for (const char* key : {"is_encoder_decoder", "add_cross_attention", "tie_encoder_decoder"}) {
    config.only(key, false);
  }
  config.only("pruned_heads", Json::Object{});
  HfModel model;
  model.family = config.family();
  model.graph.name = config.family();
  model.graph.bound = bound;
  add_ids(model, "tokens");
  add_ids(model, "targets");
  return model;
}

void check_positions(std::string_view key, int64_t positions, int64_t seq) {
  require(seq <= positions, "sequence must be from 1 to {} {}, got {}", key, positions, seq);
}

ValueId add_ids(HfModel& model, std::string_view name) {
  return model.graph.add_input(name, {DS_DTYPE_I32, {Dim::n()}});
}

ValueId add_head(HfModel& model, LayerBuilder& build, HfConfig& config, ValueId x, std::string_view head,
                 const std::string& embedding, double stddev, bool tied_default) {
  if (config.flag_or("tie_word_embeddings", tied_default)) {
    model.tied.emplace_back(std::string(head) + ".weight", embedding + ".weight");
    return build.tied_linear("logits", x, embedding + ".weight");
  }
  return build.linear(head, x, config.size("vocab_size"), {stddev, false});
}

void end_model(HfModel& model, const HfConfig& config, ValueId logits, ValueId extra_loss) {
  Graph& graph = model.graph;
  ValueId loss = graph.add("cross_entropy", {logits, graph.find_value("targets")}, {}, "loss");
  if (extra_loss >= 0) loss = graph.add("add", {loss, extra_loss}, {}, "loss.total");
  graph.add_output(loss);
  graph.add_output(logits);
  config.check_all_read();
  check_total(graph);
}

}  // namespace ds
