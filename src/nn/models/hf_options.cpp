#include "nn/models/hf_options.h"

#include <algorithm>
#include <array>

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

// Each parameter has at most HfConfig's sizes; together they are still to be counted in bytes.
void check_total(const Graph& graph) {
  double total = 0;
  for (const Parameter& param : graph.params) {
    total += static_cast<double>(graph.type(param.value).shape.numel(1));
  }
  require(total <= kMaxParameters, "the model must have at most {} parameters, got {}", kMaxParameters,
          total);
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

int64_t read_padding(HfConfig& config, int64_t vocab, int64_t otherwise) {
  if (!config.has("pad_token_id")) {
    config.pass_over("pad_token_id");
    return otherwise < vocab ? otherwise : -1;
  }
  const Json* value = config.find("pad_token_id");
  if (value == nullptr) return -1;
  bool good = value->is_integer() && value->integer() >= -vocab && value->integer() < vocab;
  if (!good) {
    raise(DS_ERROR_INVALID_ARGUMENT,
          "key 'pad_token_id' must be an integer from {} to {} (vocab_size {}), got {}", -vocab, vocab - 1,
          vocab, value->dump());
  }
  return value->integer() < 0 ? value->integer() + vocab : value->integer();
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
