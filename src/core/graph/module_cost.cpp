// Computes the cost of a forward pass by modules, as DeepSpeed's flops profiler does.
//
// The profiler counts calls of patched functions of torch while a module of the model runs. A graph
// has neither calls nor modules. But values are named after the modules that compute them, so nodes
// are assigned to modules by name, and the functions below give each operation the cost of the
// calls that it replaces. Work that the profiler does not see costs nothing here either, so that
// both tables can be compared.
#include "core/graph/module_cost.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include "core/base/contains.h"

namespace ds {
namespace {

// The prefix of the name of a gradient (core/graph/autodiff.cpp).
constexpr std::string_view kGradient = "d.";

double numel_of(const Graph& graph, ValueId value, int64_t n) {
  return static_cast<double>(graph.type(value).shape.numel(n));
}

// Counts q k^T and the weighted sum over all pairs of rows of a sequence, causal or not, and one
// operation of the softmax for each pair and head.
ModuleCost attention_cost(const Graph& graph, const Node& node, int64_t n) {
  const double heads = static_cast<double>(node.attrs.integer("heads")),
               seq = static_cast<double>(node.attrs.integer("seq")),
               out = numel_of(graph, node.out[0], n);
  const double macs = 2 * out * seq;
  return {2 * macs + heads * static_cast<double>(n) * seq, macs};
}

// Counts 2 operations for each multiply-accumulate of a product. A bias counts once for each
// column, and only if the weight is transposed.
ModuleCost product_cost(const Graph& graph, const Node& node, int64_t n) {
  const double rows = numel_of(graph, node.in[0], n);
  const Shape& weight = graph.type(node.in[1]).shape;
  const bool transposed = node.attrs.integer_or("transposed", 0) != 0;
  const double columns = static_cast<double>(weight[transposed ? 1 : 0].extent);
  const double bias = transposed && node.in.size() > 2 ? columns : 0;
  return {2 * rows * columns + bias, rows * columns};
}

// Returns the paths of all ancestors and of the module itself: "", "a", "a.b".
std::vector<std::string> path_above(const std::string& path) {
  std::vector<std::string> out{""};
  if (path.empty()) return out;
  for (size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1))
    out.push_back(path.substr(0, dot));
  out.push_back(path);
  return out;
}

}  // namespace

ModuleCost forward_cost(const Graph& graph, const Node& node, int64_t n) {
  const std::string& op = node.op;
  if (op == "linear" || op == "linear_cross_entropy") return product_cost(graph, node, n);
  if (op == "attention") return attention_cost(graph, node, n);
  const double elements = node.out.empty() ? 0 : numel_of(graph, node.out[0], n);
  if (op == "layer_norm") return {(node.in.size() > 1 ? 5 : 4) * elements, 0};
  // The profiler patches functions of torch.nn.functional, so it sees only those activations of
  // Hugging Face that look up such a function when they are called. The GELU classes hold
  // references to the unpatched function.
  static const auto& by_element = *new std::set<std::string, std::less<>>{"relu", "relu2", "silu"};
  const std::string& act = op == "glu" ? node.attrs.text("act") : op;
  if (by_element.contains(act)) return {elements, 0};
  return {};
}

std::string module_of_param(const std::string& param) {
  const size_t dot = param.rfind('.');
  return dot == param.npos ? param : param.substr(0, dot);
}

namespace {

// Returns the forward value whose gradient `value` is, by its name, or an id that does not exist.
// Trailing components are dropped, since unique_name() may have appended a number.
ValueId gradient_of(const Graph& graph, ValueId value) {
  const std::string& name = graph.values[value].name;
  if (!name.starts_with(kGradient)) return {};
  std::string of = name.substr(kGradient.size());
  while (!graph.find_value(of).exists() && of.find('.') != of.npos) of.resize(of.rfind('.'));
  return graph.find_value(of);
}

// Returns the parameter that a backward node reads or whose gradient it computes, or an id that
// does not exist.
ParamId param_of(const Graph& graph, const Node& node) {
  for (ValueId in : node.in) {
    if (ParamId p = graph.find_param(graph.values[in].name); p.exists()) return p;
  }
  for (ValueId out : node.out) {
    ValueId of = gradient_of(graph, out);
    if (!of.exists()) continue;
    if (ParamId p = graph.find_param(graph.values[of].name); p.exists()) return p;
  }
  return {};
}

}  // namespace

// A sum passes its gradient on unchanged, so a gradient may be read by the backward node of another
// operation than the one that its name suggests. Then the parameter of the reader decides. A shared
// parameter has several forward nodes, so there the gradient decides.
std::string module_of(const Graph& graph, NodeId id) {
  const Node& node = graph.nodes[id];
  auto name_of = [&](ValueId value) { return graph.values[value].name; };
  if (!graph.backward_begin.exists() || id < graph.backward_begin)
    return node.out.empty() ? "" : name_of(node.out[0]);
  ValueId forward;
  for (ValueId in : node.in) {
    if (!forward.exists()) forward = gradient_of(graph, in);
  }
  const ParamId param = param_of(graph, node);
  if (param.exists()) {
    const NodeId producer = forward.exists() ? graph.values[forward].producer : NodeId();
    // If the producer of the forward value reads the parameter, the name of the value is right.
    auto reads = [&](const Node& one) { return contains(one.in, graph.params[param].value); };
    if (!producer.exists() || !reads(graph.nodes[producer]))
      return module_of_param(graph.params[param].name);
  }
  if (!forward.exists() && !node.out.empty()) forward = gradient_of(graph, node.out[0]);
  return forward.exists() ? name_of(forward) : "";
}

// The cost of a node is added to its module and to all modules above it. A module is listed when
// its first cost is added.
std::vector<Module> modules_of(const Graph& graph, int64_t n) {
  std::vector<Module> out;
  std::map<std::string, size_t> place;
  auto add = [&](const std::string& path, int64_t params, const ModuleCost& cost) {
    for (const std::string& each : path_above(path)) {
      auto [at, fresh] = place.try_emplace(each, out.size());
      if (fresh) out.push_back({each, static_cast<int>(path_above(each).size()) - 1});
      Module& module = out[at->second];
      module.params += params;
      module.cost.flops += cost.flops;
      module.cost.macs += cost.macs;
    }
  };
  const NodeId end = graph.backward_begin.exists() ? graph.backward_begin : graph.nodes.past();
  for (NodeId id : IdRange(NodeId(0), end))
    add(module_of(graph, id), 0, forward_cost(graph, graph.nodes[id], n));
  for (const Parameter& p : graph.params)
    add(module_of_param(p.name), graph.type(p.value).shape.numel(1), {});
  // Sorts parents before their children, and siblings in the order of their first nodes.
  std::vector<Module> sorted;
  std::vector<char> taken(out.size(), 0);
  auto take = [&](auto& self, size_t index) -> void {
    taken[index] = 1;
    sorted.push_back(out[index]);
    const std::string below = out[index].path.empty() ? "" : out[index].path + ".";
    for (size_t i = 0; i < out.size(); ++i) {
      if (!taken[i] && out[i].depth == out[index].depth + 1 && out[i].path.starts_with(below))
        self(self, i);
    }
  };
  if (!out.empty()) take(take, 0);
  return sorted;
}

}  // namespace ds
