// Implements Graph: builders that check what they append, and a check of a complete graph.
//
// Invariant: nodes are in a valid execution order, each value is defined exactly once, and types
// agree with the op table. The builders maintain the invariant by checking operands, names and
// types before they append. Passes change nodes and values directly; check() tests the whole
// invariant afterwards.
//
// Cost: check() is linear in nodes and operands.
#include "core/graph/graph.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/name.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

// Checks the name of a value. The name of a node's result has no length limit, since it may extend
// the name of another value.
void require_value_name(std::string_view name, NodeId producer) {
  require_name("value", name, !producer.exists() ? kMostName : name.max_size());
}

// Checks the name, the type and the size of a new value. `least` is the smallest extent. It is 0
// for parameters only, since a rank may hold an empty part of one.
void check_value(const Graph& graph, std::string_view name, const TensorType& type, NodeId producer,
                 int64_t least = 1) {
  require_value_name(name, producer);
  ValueId other = graph.find_value(name);
  require(!other.exists(), "value name '{}' is already used by value {}", name, other);
  bool sized = type.shape.rank() <= 4;
  for (const Dim& dim : type.shape.dims()) sized = sized && (dim.symbolic || dim.extent >= least);
  require(sized, "value '{}' must have at most 4 dimensions, each n or at least {}, got {}", name,
          least, type.text());
  // Keeps products of sizes in later stages within int64.
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t numel = type.shape.numel(graph.bound);
  require(numel <= kMost, "value '{}' must have at most {} elements at n = {}, got {} of {}", name,
          kMost, graph.bound, numel, type.text());
}

ValueId add_value(Graph& graph, std::string_view name, TensorType type, int64_t least = 1) {
  check_value(graph, name, type, none, least);
  return graph.append_value({std::string(name), std::move(type), none});
}

bool in_range(const Graph& graph, ValueId value) { return graph.values.has(value); }

// Checks a node, whose operands must already be defined, and marks its results as defined.
void check_node(const Graph& graph, NodeId id, IdVector<ValueId, bool>& defined) {
  const Node& node = graph.nodes[id];
  for (size_t i = 0; i < node.in.size(); ++i) {
    require(in_range(graph, node.in[i]) && defined[node.in[i]],
            "node {} '{}': operand {} is used before it is defined", id, node.op, i);
  }
  std::vector<TensorType> types = infer_types(graph, node.op, node.in, node.attrs);
  require(op(node.op).by_callback == (node.custom != nullptr), "node {} '{}': has {} callbacks", id,
          node.op, node.custom ? "no use for" : "no");
  require(types.size() == node.out.size(), "node {} '{}': must have {} outputs, got {}", id,
          node.op, types.size(), node.out.size());
  for (size_t i = 0; i < types.size(); ++i) {
    require(in_range(graph, node.out[i]),
            "node {} '{}': output {} is value {}, which does not exist", id, node.op, i,
            node.out[i]);
    const Value& value = graph.values[node.out[i]];
    require(!defined[node.out[i]] && value.producer == id,
            "node {} '{}': output %{} is produced by node {}", id, node.op, value.name,
            value.producer);
    require(value.type == types[i], "node {} '{}': output %{} must be {}, got {}", id, node.op,
            value.name, types[i].text(), value.type.text());
    defined[node.out[i]] = true;
  }
}

}  // namespace

std::string TensorType::text() const { return dtype_name(dtype) + shape.text(); }

// The time is linear in the number of names with this base, which is small.
std::string unique_name(const Graph& graph, std::string_view base) {
  std::string name(base);
  for (int i = 1; graph.find_value(name).exists(); ++i) name = fmt::format("{}.{}", base, i);
  return name;
}

ValueId Graph::add_input(std::string_view value_name, TensorType type) {
  const std::vector<Dim>& dims = type.shape.dims();
  require(std::ranges::count_if(dims, [](const Dim& d) { return d.symbolic; }) <= 1,
          "input '{}' must have at most one dimension n, got {}", TensorName(value_name),
          type.text());
  ValueId value = add_value(*this, value_name, std::move(type));
  inputs.push_back(value);
  return value;
}

ValueId Graph::add_param(std::string_view value_name, TensorType type, Init init) {
  require(!type.shape.symbolic(), "parameter '{}' must have a constant shape, got {}",
          TensorName(value_name), type.text());
  constexpr std::string_view kKinds[] = {"zeros", "ones", "normal", "uniform"};
  require(contains(kKinds, init.kind),
          "init of parameter '{}' must be zeros, ones, normal or uniform, got '{}'",
          TensorName(value_name), init.kind);
  ValueId value = add_value(*this, value_name, std::move(type), 0);
  params.push_back({std::string(value_name), value, std::move(init), none});
  return value;
}

ValueId Graph::add(std::string_view op_name, const std::vector<ValueId>& in, Attrs attrs,
                   std::string_view value_name) {
  std::vector<TensorType> types = infer_types(*this, op_name, in, attrs);
  std::string base = value_name.empty()
                         ? unique_name(*this, fmt::format("{}.{}", op_name, nodes.size()))
                         : std::string(value_name);
  Node node{std::string(op_name), in, {}, std::move(attrs)};
  NodeId id = nodes.past();
  auto name_of = [&](size_t i) { return i == 0 ? base : fmt::format("{}.{}", base, i); };
  // Everything is checked before the graph changes, so a refused node leaves it as it was.
  for (size_t i = 0; i < types.size(); ++i) check_value(*this, name_of(i), types[i], id);
  for (size_t i = 0; i < types.size(); ++i)
    node.out.push_back(append_value({name_of(i), std::move(types[i]), id}));
  nodes.push_back(std::move(node));
  return nodes.back().out.front();
}

// The attributes repeat the parts of the object on which shapes depend, because shape rules read
// only attributes.
ValueId Graph::add_custom(std::shared_ptr<const CustomOp> custom, const std::vector<ValueId>& in) {
  Attrs attrs{{"name", custom->name}, {"outputs", custom->outputs}};
  ValueId first = add("custom", in, std::move(attrs),
                      unique_name(*this, fmt::format("{}.{}", custom->name, nodes.size())));
  nodes.back().custom = std::move(custom);
  return first;
}

void Graph::add_output(std::string_view output_name, ValueId value) {
  require_name("output", output_name);
  require(!find_output(output_name), "output name '{}' is already used by %{}", output_name,
          find_output(output_name) ? values[find_output(output_name)->value].name : "");
  require(values.size() > 0, "output must be a value of the graph, which has none yet, got {}",
          value);
  require(in_range(*this, value), "output must be a value from 0 to {}, got {}",
          static_cast<int64_t>(values.size()) - 1, value);
  outputs.push_back({std::string(output_name), value});
}

ValueId Graph::find_value(std::string_view value_name) const {
  auto found = id_of_name_.find(value_name);
  return found == id_of_name_.end() ? none : found->second;
}

ValueId Graph::append_value(Value value) {
  id_of_name_.emplace(value.name, values.past());
  return values.add(std::move(value));
}

// A pass may temporarily give two values the same name; the table then keeps the first.
void Graph::rename_value(ValueId value, std::string value_name) {
  Value& renamed = values.at(value);
  // The entry for the old name is erased only if it refers to this value.
  if (find_value(renamed.name) == value) id_of_name_.erase(renamed.name);
  renamed.name = std::move(value_name);
  id_of_name_.emplace(renamed.name, value);
}

void Graph::replace_values(IdVector<ValueId, Value> replacement) {
  values = std::move(replacement);
  id_of_name_.clear();
  for (ValueId id : values.ids()) id_of_name_.emplace(values[id].name, id);
}

ParamId Graph::find_param(std::string_view param_name) const {
  for (ParamId id : params.ids()) {
    if (params[id].name == param_name) return id;
  }
  return none;
}

const GraphOutput* Graph::find_output(std::string_view output_name) const {
  for (const GraphOutput& output : outputs) {
    if (output.name == output_name) return &output;
  }
  return nullptr;
}

void Graph::check() const {
  require(bound >= 1, "bound of graph '{}' must be at least 1, got {}", name, bound);
  for (ValueId id : values.ids()) {
    require_value_name(values[id].name, values[id].producer);
    require(find_value(values[id].name) == id, "value name '{}' is used twice", values[id].name);
  }
  // SSA: each value is defined exactly once, and before it is read.
  IdVector<ValueId, bool> defined(values.size(), false);
  auto declare = [&](std::string_view kind, ValueId value) {
    require(in_range(*this, value), "{} is value {}, which does not exist", kind, value);
    const Value& v = values[value];
    require(!v.producer.exists() && !defined[value], "{} %{} is defined twice", kind, v.name);
    defined[value] = true;
  };
  for (ValueId value : inputs) declare("input", value);
  for (const Parameter& param : params) declare("parameter", param.value);
  for (NodeId id : nodes.ids()) check_node(*this, id, defined);
  for (ValueId id : values.ids()) {
    require(defined[id], "value %{} is neither an input, a parameter nor an output of a node",
            values[id].name);
  }
  for (const GraphOutput& output : outputs) {
    require_name("output", output.name);
    require(find_output(output.name) == &output, "output name '{}' is used twice", output.name);
    require(in_range(*this, output.value), "output '{}' is value {}, which does not exist",
            output.name, output.value);
  }
  for (const Parameter& param : params) {
    if (!param.grad.exists()) continue;
    require(in_range(*this, param.grad), "gradient of '{}' is value {}, which does not exist",
            TensorName(param.name), param.grad);
    require(type(param.grad) == type(param.value), "gradient of '{}' must be {}, got {}",
            TensorName(param.name), type(param.value).text(), type(param.grad).text());
  }
  // backward_begin may be one past the last node: a backward part can be empty.
  require(backward_begin >= none && backward_begin <= nodes.past(),
          "backward_begin must be from -1 to {}, got {}", nodes.size(), backward_begin);
}

}  // namespace ds
