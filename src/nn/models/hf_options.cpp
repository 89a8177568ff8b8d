#include "nn/models/hf_options.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string_view>

#include "core/base/error.h"
#include "core/base/json.h"
#include "nn/models/hf_rows.h"

namespace ds {
namespace {

constexpr int64_t kMaxLayers = 2048;
constexpr double kMaxParameters = 1e13;

// Activations: the name in Transformers, and the name for LayerBuilder::activation().
constexpr std::array<std::pair<std::string_view, std::string_view>, 16> activations{
    {{"gelu", "gelu_erf"},
     {"gelu_python", "gelu_erf"},
     {"gelu_new", "gelu_tanh"},
     {"gelu_fast", "gelu_tanh"},
     {"gelu_pytorch_tanh", "gelu_tanh"},
     {"gelu_python_tanh", "gelu_tanh"},
     {"gelu_accurate", "gelu_tanh"},
     {"gelu_10", "gelu_10"},
     {"tanh", "tanh"},
     {"relu2", "relu2"},
     {"laplace", "laplace"},
     {"sigmoid", "sigmoid"},
     {"quick_gelu", "quick_gelu"},
     {"relu", "relu"},
     {"silu", "silu"},
     {"swish", "silu"}}};

// Limits the number of parameters in total, so that sums of bytes cannot overflow; HfConfig limits
// only each size.
void check_total(const Graph& graph) {
  double total = 0;
  for (const Parameter& param : graph.params) {
    total += static_cast<double>(graph.type(param.value).shape.numel(1));
  }
  require(total <= kMaxParameters, "the model must have at most {} parameters, got {}",
          kMaxParameters, total);
}

}  // namespace

int64_t read_layers(const HfConfig& config, std::string_view key) {
  int64_t layers = config.size(key);
  if (layers > kMaxLayers) config.refuse(key, fmt::format("at most {}", kMaxLayers));
  return layers;
}

std::string read_activation(const HfConfig& config, std::string_view key) {
  std::string name = config.text(key), known;
  for (const auto& [theirs, ours] : activations) {
    if (theirs == name) return std::string(ours);
    known += (known.empty() ? "" : ", ") + std::string(theirs);
  }
  config.refuse(key, "one of " + known);
}

int64_t read_padding(const HfConfig& config, int64_t vocab) {
  const Json* value = config.find("pad_token_id");
  if (value == nullptr) return -1;
  // The family's default may exceed a vocabulary that is smaller than that of the original model.
  // Then no row is padding.
  if (!config.has("pad_token_id") && value->integer() >= vocab) return -1;
  bool good = value->is_integer() && value->integer() >= -vocab && value->integer() < vocab;
  if (!good) {
    raise(DS_ERROR_INVALID_ARGUMENT,
          "key 'pad_token_id' must be an integer from {} to {} (vocab_size {}), got {}", -vocab,
          vocab - 1, vocab, value->dump());
  }
  // As in Python, a negative index counts from the end.
  return value->integer() < 0 ? value->integer() + vocab : value->integer();
}

std::vector<int64_t> read_windows(const HfConfig& config, int64_t window,
                                  const std::vector<bool>& sliding) {
  std::vector<int64_t> windows;
  for (bool slides : sliding) windows.push_back(slides ? window : 0);
  const Json* types = config.find("layer_types");
  if (types == nullptr) return windows;
  if (!types->is_array() || types->array().size() != sliding.size()) {
    raise(DS_ERROR_INVALID_ARGUMENT,
          "key 'layer_types' must have one entry for each of {} layers, got {}", sliding.size(),
          types->is_array() ? fmt::format("{}", types->array().size()) : types->kind());
  }
  for (size_t i = 0; i < windows.size(); ++i) {
    const Json& type = types->array()[i];
    // "attention" is an older name of "full_attention".
    bool full =
        type.is_string() && (type.string() == "full_attention" || type.string() == "attention");
    bool slides = type.is_string() && type.string() == "sliding_attention";
    if (!full && !slides) {
      raise(DS_ERROR_UNSUPPORTED,
            "key 'layer_types' may contain only full_attention and sliding_attention, got {}",
            type.dump());
    }
    if (slides && window == 0) {
      raise(DS_ERROR_INVALID_ARGUMENT,
            "key 'sliding_window' must be given when layer_types has {}, got none", type.dump());
    }
    windows[i] = slides ? window : 0;
  }
  return windows;
}

std::vector<int64_t> read_windows(const HfConfig& config, int64_t layers) {
  return read_windows(config, config.size_or("sliding_window", 0),
                      std::vector<bool>(static_cast<size_t>(layers), true));
}

// Without the key, every head has separate keys and values.
int64_t read_kv_heads(const HfConfig& config, int64_t heads) {
  int64_t groups = config.size_or("num_key_value_heads", heads);
  require(heads % groups == 0,
          "key 'num_key_value_heads' must divide num_attention_heads {}, got {}", heads, groups);
  return groups;
}

int64_t read_head_width(const HfConfig& config, int64_t hidden, int64_t heads) {
  int64_t width = config.size_or("head_dim", 0);
  if (width > 0) return width;
  check_heads(hidden, heads);
  return hidden / heads;
}

void check_heads(int64_t hidden, int64_t heads) {
  require(hidden % heads == 0,
          "key 'hidden_size' must be a multiple of num_attention_heads {}, got {}", heads, hidden);
}

HfModel begin_model(const HfConfig& config, int64_t bound, bool masked) {
  HfModel model;
  model.family = config.family();
  model.graph.name = config.family();
  model.graph.bound = bound;
  add_ids(model, "tokens");
  add_ids(model, "targets");
  if (config.rows() == HfRows::documents) {
    add_ids(model, "begin");
    add_ids(model, "positions");
  } else if (masked || config.rows() == HfRows::masked) {
    add_ids(model, "mask");
  }
  return model;
}

Documents documents_of(const HfModel& model) {
  ValueId begin = model.graph.find_value("begin");
  return begin.exists() ? Documents{begin, model.graph.find_value("positions")} : Documents();
}

int64_t read_positions(const HfConfig& config, int64_t seq) {
  int64_t positions = config.size(config.positions_key());
  require(seq <= positions, "sequence must be from 1 to {} {}, got {}", config.positions_key(),
          positions, seq);
  return positions;
}

ValueId add_ids(HfModel& model, std::string_view name) {
  return model.graph.add_input(name, {DS_DTYPE_I32, {Dim::n()}});
}

ValueId add_head(HfModel& model, LayerBuilder& build, const HfConfig& config, ValueId x,
                 std::string_view head, const std::string& embedding, double stddev) {
  if (config.flag("tie_word_embeddings")) {
    model.tied.emplace_back(std::string(head) + ".weight", embedding + ".weight");
    return build.tied_linear("logits", x, embedding + ".weight");
  }
  return build.linear(head, x, config.size("vocab_size"), {stddev, false});
}

// Output 0 is the loss that training minimizes. If extra_loss is added to it, token_loss keeps the
// loss of the tokens alone.
void end_model(HfModel& model, const HfConfig& config, ValueId logits, ValueId extra_loss) {
  Graph& graph = model.graph;
  ValueId loss = graph.add("cross_entropy", {logits, graph.find_value("targets")}, {}, "loss");
  if (extra_loss.exists()) model.token_loss = loss;
  if (extra_loss.exists()) loss = graph.add("add", {loss, extra_loss}, {}, "loss.total");
  graph.add_output("loss", loss);
  graph.add_output("logits", logits);
  model.unread = config.unread();
  check_total(graph);
}

}  // namespace ds
