// The low-rank adapters of a graph.
//
// A layer can have an adapter if its weight is a parameter that only linear nodes read: a weight
// that an embedding reads as well is a tied head, which has no module of its own in the folder.
// Nodes keep their order: the product of an adapter follows its layer, whose result gets another
// name, and the sum takes over the name and the readers of the result. So nothing else in the graph
// changes. The factor is applied between A and B, where values have the fewest columns.
#include "passes/adapters.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/config/refuse.h"
#include "core/graph/ops.h"
#include "nn/adapter_names.h"

namespace ds {
namespace {

// The first number of a random stream of a dropout; lower ones belong to initial values.
constexpr int64_t kFirstStream = 1 << 15;
constexpr std::string_view kWeight = ".weight";

// The kinds of nodes that read a value: linear nodes as their weight, and others.
struct Use {
  bool by_linear = false, by_others = false;
};

class Adapters {
 public:
  Adapters(const Graph& graph, const AdapterKeys& keys) : graph_(graph), own_(keys), keys_(&own_) {}

  Graph run(int chosen) {
    ensure(!graph_.backward_begin.exists(), "adapters of graph '{}' must precede differentiate",
           graph_.name);
    find_uses();
    for (Parameter& param : graph_.params) param.frozen = true;
    const auto count = static_cast<int>(own_.others.size()) + 1;
    IdVector<ValueId, Layer> used(graph_.values.size());
    for (int number = 0; number < count; ++number) {
      keys_ = &adapter_of(own_, number);
      add_params();
      if (number == chosen) used = layers_;
    }
    layers_ = std::move(used);
    keys_ = chosen > 0 ? &adapter_of(own_, chosen) : &own_;
    add_nodes();
    keys_ = &own_;
    train_modules();
    train_biases();
    return std::move(graph_);
  }

 private:
  // Adds the parameters of the adapter keys_ in the order of nodes.
  void add_params() {
    find_layers();
    for (const Node& node : graph_.nodes) {
      if (const std::string& module = module_at(node); !module.empty()) add_matrices(node, module);
    }
  }

  void add_nodes() {
    const IdVector<NodeId, Node> nodes = std::exchange(graph_.nodes, {});
    for (const Node& node : nodes) {
      const std::string& module = module_at(node);
      if (module.empty()) {
        keep(node);
      } else {
        adapt(node, module);
      }
    }
  }

  // A parameter that a linear node reads as its weight, and the name of its layer, which is ""
  // unless the layer gets an adapter.
  struct Layer {
    std::string module;
    // The values of A and B, once they have been added, and with DoRA of the magnitudes and of the
    // norms that they are divided by.
    ValueId a, b, m, norms;
  };

  static bool is_weight_of(const Node& node, size_t operand) {
    return op(node.op).linear && operand == 1;
  }

  void find_uses() {
    uses_.resize(graph_.values.size());
    int64_t last = kFirstStream - 1;
    for (const Node& node : graph_.nodes) {
      for (size_t k = 0; k < node.in.size(); ++k) {
        Use& use = uses_[node.in[k]];
        (is_weight_of(node, k) ? use.by_linear : use.by_others) = true;
      }
      if (node.op == "dropout" || node.op == "layerdrop" || node.op == "attention")
        last = std::max(last, node.attrs.integer_or("op", last));
    }
    next_stream_ = last + 1;
  }

  static std::string layer_name(const std::string& param) {
    return param.ends_with(kWeight) ? param.substr(0, param.size() - kWeight.size()) : param;
  }

  // Returns the weight of the head: the linear layer that output `logits` comes from.
  ValueId head() const {
    const GraphOutput* logits = graph_.find_output("logits");
    ValueId at = logits ? logits->value : ValueId();
    while (at.exists() && graph_.values[at].producer.exists()) {
      const Node& node = graph_.nodes[graph_.values[at].producer];
      if (op(node.op).linear) return node.in[1];
      at = node.in.empty() ? ValueId() : node.in[0];
    }
    return {};
  }

  void find_layers() {
    const bool all = keys_->target_modules.expression == kAllLinear;
    const ValueId last = all ? head() : ValueId();
    layers_.assign(uses_.size(), {});
    std::vector<std::string> possible, chosen;
    for (const Parameter& param : graph_.params) {
      // Parameters of adapters come last.
      if (!uses_.has(param.value)) break;
      const Use& use = uses_[param.value];
      if (!use.by_linear || use.by_others) continue;
      const std::string name = layer_name(param.name);
      possible.push_back(name);
      if (!is_target(*keys_, name) || param.value == last) continue;
      check_rank(param, name);
      layers_[param.value].module = name;
      chosen.push_back(name);
    }
    check_targets(possible, chosen);
  }

  // Refuses targets that match nothing. Of a list, each name must match a layer, so that a
  // misspelt name is not passed over; names in a folder of PEFT's are for several models.
  void check_targets(const std::vector<std::string>& possible,
                     const std::vector<std::string>& chosen) const {
    auto none_of = [&](const std::string& name, const std::vector<std::string>& layers) {
      return std::ranges::none_of(layers, [&](const auto& layer) { return is_named(name, layer); });
    };
    for (const std::string& name : keys_->target_modules.names) {
      if (!none_of(name, possible) || (!keys_->folder.empty() && !chosen.empty())) continue;
      refuse_target(name, possible);
    }
    if (chosen.empty())
      refuse_target(keys_->target_modules.names.empty()
                        ? keys_->target_modules.expression
                        : fmt::format("{}", fmt::join(keys_->target_modules.names, ", ")),
                    possible);
  }

  [[noreturn]] void refuse_target(const std::string& name,
                                  const std::vector<std::string>& possible) const {
    std::vector<std::string> ends;
    for (const std::string& layer : possible) {
      std::string end = layer.substr(layer.rfind('.') + 1);
      if (std::ranges::find(ends, end) == ends.end()) ends.push_back(std::move(end));
    }
    refuse("adapter.target_modules", "'{}' matches none of the {} linear layers of graph '{}' ({})",
           name, possible.size(), graph_.name, fmt::format("{}", fmt::join(ends, ", ")));
  }

  void check_rank(const Parameter& param, const std::string& module) const {
    const Shape& shape = graph_.type(param.value).shape;
    const int64_t most = std::min(shape[0].extent, shape[1].extent), rank = rank_of(*keys_, module);
    if (rank <= most) return;
    refuse(rank == keys_->r ? "adapter.r" : "adapter.rank_pattern",
           "the rank of layer '{}' must be at most {}, the lesser width of {}, got {}", module,
           most, shape.text(), rank);
  }

  const std::string& module_at(const Node& node) const {
    static const std::string no_module;
    if (!op(node.op).linear || !layers_.has(node.in[1])) return no_module;
    return layers_[node.in[1]].module;
  }

  NodeId keep(Node node) {
    const NodeId id = graph_.nodes.past();
    for (ValueId out : node.out) graph_.values[out].producer = id;
    graph_.nodes.push_back(std::move(node));
    return id;
  }

  // Appends the layer under another name, its adapter, and the sum of both under the layer's name.
  void adapt(Node node, const std::string& module) {
    const ValueId result = node.out[0], x = node.in[0];
    const std::string name = graph_.values[result].name;
    const Layer layer = layers_[node.in[1]];
    Value base = graph_.values[result];
    base.name = unique_name(graph_, name + ".base_layer");
    node.out = {graph_.append_value(std::move(base))};
    const ValueId y = node.out[0];
    keep(std::move(node));
    ValueId h = x;
    if (keys_->dropout > 0)
      h = graph_.add("dropout", {h}, {{"p", keys_->dropout}, {"op", next_stream_++}},
                     unique_name(graph_, name + ".lora_dropout"));
    const ValueId dropped = h;
    h = graph_.add("linear", {h, layer.a}, {}, unique_name(graph_, name + ".lora_A"));
    if (const double scale = scale_of(*keys_, module); scale != 1)
      h = graph_.add("scale", {h}, {{"factor", scale}}, unique_name(graph_, name + ".lora_scaled"));
    h = graph_.add("linear", {h, layer.b}, {}, unique_name(graph_, name + ".lora_B"));
    if (keys_->use_dora) h = with_magnitude(graph_.nodes[graph_.values[y].producer], dropped, h);
    keep({"add", {y, h}, {result}, {}});
  }

  // Returns what an adapter with magnitudes adds to the result of its layer. `product` is that of
  // the adapter. As in PEFT, the layer's own product is that of the input after dropout, so with
  // dropout it is computed again.
  ValueId with_magnitude(const Node& layer_node, ValueId dropped, ValueId product) {
    const Node node = layer_node;
    const Layer& layer = layers_[node.in[1]];
    const std::string name = graph_.values[product].name;
    std::vector<ValueId> in{node.out[0], product, layer.m, norms(node, layer.module)};
    if (dropped != node.in[0]) {
      in[0] = graph_.add("linear", {dropped, node.in[1]}, node.attrs,
                         unique_name(graph_, name + ".base"));
    } else if (node.in.size() == 3) {
      in.push_back(node.in[2]);
    }
    return graph_.add("dora", in, {}, unique_name(graph_, name + ".dora"));
  }

  // Adds A and B for the weight of a node. Nodes that share a weight share its adapter.
  void add_matrices(const Node& node, const std::string& module) {
    Layer& layer = layers_[node.in[1]];
    if (layer.a.exists()) return;
    const TensorType weight = graph_.type(node.in[1]);
    const bool transposed = node.attrs.integer_or("transposed", 0) != 0;
    const int64_t rank = rank_of(*keys_, module);
    const int64_t outputs = weight.shape[transposed ? 1 : 0].extent,
                  inputs = weight.shape[transposed ? 0 : 1].extent;
    auto uniform = [](int64_t columns) {
      return Init{"uniform", 1 / std::sqrt(static_cast<double>(columns))};
    };
    const Init a =
        keys_->init == "gaussian" ? Init{"normal", 1 / static_cast<double>(rank)} : uniform(inputs);
    const Init b = keys_->init == "false" ? uniform(rank) : Init{"zeros", 0};
    layer.a = add_param(adapter_param(module, AdapterPart::a, keys_->name),
                        {weight.dtype, {rank, inputs}}, a);
    layer.b = add_param(adapter_param(module, AdapterPart::b, keys_->name),
                        {weight.dtype, {outputs, rank}}, b);
    if (!keys_->use_dora) return;
    const std::string m = adapter_param(module, AdapterPart::magnitude, keys_->name);
    layer.m = add_param(m, {weight.dtype, {outputs}}, {"ones", 0});
  }

  // Adds a parameter, which is frozen unless it belongs to the own adapter.
  ValueId add_param(const std::string& name, const TensorType& type, const Init& init) {
    const ValueId value = graph_.add_param(name, type, init);
    graph_.params.back().frozen = keys_ != &own_;
    return value;
  }

  // Returns the norms of the adapted weight of a layer, which all nodes with this weight share.
  ValueId norms(const Node& node, const std::string& module) {
    Layer& layer = layers_[node.in[1]];
    if (layer.norms.exists()) return layer.norms;
    Attrs attrs{{"factor", scale_of(*keys_, module)}};
    if (node.attrs.integer_or("transposed", 0) != 0) attrs.set("transposed", int64_t{1});
    layer.norms = graph_.add("dora_norm", {node.in[1], layer.a, layer.b}, attrs,
                             unique_name(graph_, module + ".lora_norms"));
    return layer.norms;
  }

  void train_modules() {
    for (const std::string& end : keys_->modules_to_save) {
      AdapterKeys one;
      one.modules_to_save = {end};
      bool any = false;
      for (Parameter& param : graph_.params) {
        if (is_adapter_param(param.name) || !is_saved_module(one, module_of(param.name))) continue;
        if (const Use& use = uses_[param.value]; use.by_linear && use.by_others)
          refuse("adapter.modules_to_save",
                 "'{}' names '{}', which is tied: the embedding and the head read it, and PEFT "
                 "would train a copy for one of them; untie the model (tie_word_embeddings false)",
                 end, TensorName(param.name));
        param.frozen = false;
        any = true;
      }
      if (!any)
        refuse("adapter.modules_to_save", "'{}' matches no module of graph '{}'", end, graph_.name);
    }
  }

  void train_biases() {
    if (keys_->bias == "none") return;
    constexpr std::string_view kBias = ".bias";
    for (Parameter& param : graph_.params) {
      if (!param.name.ends_with(kBias)) continue;
      const std::string a = adapter_param(module_of(param.name), AdapterPart::a);
      if (keys_->bias == "all" || graph_.find_param(a).exists()) param.frozen = false;
    }
  }

  Graph graph_;
  const AdapterKeys& own_;
  // The adapter whose parameters or nodes are being added.
  const AdapterKeys* keys_;
  // By value of the base's graph.
  IdVector<ValueId, Use> uses_;
  IdVector<ValueId, Layer> layers_;
  int64_t next_stream_ = kFirstStream;
};

}  // namespace

Graph add_adapters(const Graph& graph, const AdapterKeys& keys, int chosen) {
  return keys.on() ? Adapters(graph, keys).run(chosen) : graph;
}

}  // namespace ds
