#include "passes/precision.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/graph/ops.h"
#include "core/graph/ops/rules.h"

namespace ds {
namespace {

bool floating(DType dtype) {
  return dtype == DS_DTYPE_F32 || dtype == DS_DTYPE_BF16 || dtype == DS_DTYPE_F16 ||
         dtype == DS_DTYPE_F64;
}

// Returns the inputs that operations read only as operands of the type in which sums are computed,
// such as the losses of a reference model. They keep this precision.
IdVector<ValueId, char> wide_inputs(const Graph& graph) {
  IdVector<ValueId, char> wide(graph.values.size()), narrow(graph.values.size());
  for (const Node& node : graph.nodes) {
    const OpForm* form = op(node.op).form(node.in.size());
    for (size_t i = 0; i < node.in.size(); ++i) {
      const bool sums = form != nullptr && form->places(node.in.size())[i]->type.starts_with("A[");
      (sums ? wide : narrow)[node.in[i]] = 1;
    }
  }
  for (ValueId id : wide.ids()) wide[id] = wide[id] != 0 && narrow[id] == 0;
  return wide;
}

}  // namespace

void set_precision(Graph& graph, DType compute) {
  ensure(!graph.backward_begin.exists(), "precision of graph '{}' must be set before differentiate",
         graph.name);
  const IdVector<ValueId, char> wide = wide_inputs(graph);
  for (ValueId id : graph.values.ids()) {
    Value& value = graph.values[id];
    if (!value.producer.exists() && floating(value.type.dtype))
      value.type.dtype = wide[id] ? wide_type(compute) : compute;
  }
  for (const Node& node : graph.nodes) {
    std::vector<TensorType> in;
    for (ValueId id : node.in) in.push_back(graph.type(id));
    std::vector<TensorType> out = op(node.op).infer(in, node.attrs);
    for (size_t k = 0; k < out.size(); ++k) graph.values[node.out[k]].type = out[k];
  }
}

namespace {

// Returns whether torch.autocast computes the operation in f32 even if its operands are not f32, as
// it does for norms, losses and softmax.
bool in_f32(const Node& node) {
  constexpr std::string_view kOps[] = {"layer_norm",    "rms_norm",  "cross_entropy",   "mse",
                                       "load_balance",  "top_gates", "preference_loss", "softmax",
                                       "causal_softmax"};
  return contains(kOps, node.op);
}

// A rewrite of the nodes of a forward graph, one by one, that inserts casts before nodes whose
// operands have another type.
class Autocast {
 public:
  Autocast(Graph& graph, DType low) : graph_(graph), low_(low) {}

  void run() {
    for (Node& node : IdVector<NodeId, Node>(graph_.nodes)) {
      const DType type = operand_type(node);
      for (ValueId& in : node.in) {
        DType have = graph_.type(in).dtype;
        if (floating(have) && have != type) in = cast_of(in, type);
      }
      std::vector<TensorType> types;
      for (ValueId in : node.in) types.push_back(graph_.type(in));
      types = op(node.op).infer(types, node.attrs);
      for (size_t k = 0; k < types.size(); ++k) graph_.values[node.out[k]].type = types[k];
      nodes_.push_back(std::move(node));
    }
    graph_.nodes = std::move(nodes_);
    for (NodeId i : graph_.nodes.ids()) {
      for (ValueId out : graph_.nodes[i].out) graph_.values[out].producer = i;
    }
  }

 private:
  // Returns the type to which the operands of a node are cast: the low type for products, f32 for
  // norms, losses and softmax, and for other operations f32 if any operand is f32.
  DType operand_type(const Node& node) const {
    if (op(node.op).products) return low_;
    if (in_f32(node)) return DS_DTYPE_F32;
    bool any_f32 = std::ranges::any_of(
        node.in, [&](ValueId in) { return graph_.type(in).dtype == DS_DTYPE_F32; });
    return any_f32 ? DS_DTYPE_F32 : low_;
  }

  // Returns the cast of a value to a type. Each value is cast to a type at most once, and later
  // readers share the cast.
  ValueId cast_of(ValueId value, DType type) {
    ValueId& made = casts_[{value, type}];
    if (made.exists()) return made;
    Value result = graph_.values[value];
    result.name = unique_name(graph_, fmt::format("{}.{}", result.name, dtype_name(type)));
    result.type.dtype = type;
    made = graph_.append_value(std::move(result));
    Node node;
    node.op = "cast";
    node.in = {value};
    node.out = {made};
    node.attrs.set("dtype", std::string(dtype_name(type)));
    nodes_.push_back(std::move(node));
    return made;
  }

  Graph& graph_;
  const DType low_;
  IdVector<NodeId, Node> nodes_;
  std::map<std::pair<ValueId, DType>, ValueId> casts_;
};

}  // namespace

void autocast(Graph& graph, DType low) {
  ensure(!graph.backward_begin.exists(), "precision of graph '{}' must be set before differentiate",
         graph.name);
  Autocast(graph, low).run();
}

void scale_loss(Graph& graph) {
  if (!graph.backward_begin.exists() || !graph.nodes.has(graph.backward_begin)) return;
  Node& seed = graph.nodes[graph.backward_begin];
  ensure(seed.op == "fill", "backward of graph '{}' must begin with fill, got '{}'", graph.name,
         seed.op);
  seed.attrs.set("loss_scale", int64_t{1});
}

void cast_output(Graph& graph, size_t index) {
  ValueId value = graph.outputs.at(index).value;
  if (graph.type(value).dtype == DS_DTYPE_F32) return;
  std::string name = unique_name(graph, graph.values[value].name + ".f32");
  graph.outputs[index].value = graph.add("cast", {value}, {{"dtype", std::string("f32")}}, name);
}

}  // namespace ds
