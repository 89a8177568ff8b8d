#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/base/ids.h"
#include "core/base/shape.h"
#include "core/graph/custom_op.h"
#include "core/graph/param_slice.h"

namespace ds {

using ValueId = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;
using ParamId = Id<struct ParamTag>;  // its number is the parameter's at the C interface
using InputId = Id<struct InputTag>;

struct TensorType {
  DType dtype = DS_DTYPE_NONE;
  Shape shape;
  bool operator==(const TensorType&) const = default;
  std::string text() const;  // "bf16[n,384]"
};

// One SSA value. name is unique in the graph, without the '%'.
struct Value {
  std::string name;
  TensorType type;
  NodeId producer;  // none: an input or a parameter
};

struct Node {
  std::string op;  // a name of the op table (core/graph/ops)
  std::vector<ValueId> in;
  std::vector<ValueId> out;
  Attrs attrs;
  std::shared_ptr<const CustomOp> custom =
      nullptr;  // of an operation by callback; null: the table has it all
  bool operator==(const Node&) const = default;
};

// How a parameter is drawn: "zeros", "ones" (scale unused) or "normal" (scale = standard
// deviation).
struct Init {
  std::string kind = "zeros";
  double scale = 0;
  bool operator==(const Init&) const = default;
};

// A tensor of the model. Its place in Graph::params is its identity, on every rank.
struct Parameter {
  std::string name;  // for example "h.3.attn.qkv.weight"
  ValueId value;     // of the type of what this rank holds
  Init init;
  ValueId grad;         // set by differentiate()
  bool frozen = false;  // gets none; no part of the text
  // Of a larger tensor, to which ids, names and draws belong; none: the parameter is whole. No part
  // of the text either.
  std::optional<ParamSlice> slice;
  // Axes of the mesh over which its gradients are summed; none: those of `data`.
  std::vector<std::string> reduced_over;
};

// A value that the graph is made for.
struct GraphOutput {
  std::string name;  // unique among outputs, for example "logits"
  ValueId value;
  bool operator==(const GraphOutput&) const = default;
};

// A model: nodes in a valid execution order. Built by nn/ or ds_graph_op, changed only by passes.
class Graph {
 public:
  std::string name = "graph";
  int64_t bound = 1;  // n <= bound
  IdVector<ValueId, Value> values;
  IdVector<NodeId, Node> nodes;
  IdVector<InputId, ValueId> inputs;
  IdVector<ParamId, Parameter> params;
  std::vector<GraphOutput> outputs;  // outputs[0] is the loss of a training graph
  NodeId backward_begin;             // first node of the backward part; none before differentiate()
  // f32[], of the forward part: what the loss counts for among those of a step; none: all count
  // alike. No part of the text.
  ValueId loss_weight;

  ValueId add_input(std::string_view name, TensorType type);
  ValueId add_param(std::string_view name, TensorType type, Init init);
  // Appends a node: checks arity, types and attributes against the op table and infers output
  // types. Output names are `name`, `name.1`, ...; an empty name makes one. Returns the first
  // output.
  ValueId add(std::string_view op, const std::vector<ValueId>& in, Attrs attrs = {},
              std::string_view name = "");
  // Appends a node of a custom operation.
  ValueId add_custom(std::shared_ptr<const CustomOp> custom, const std::vector<ValueId>& in);
  void add_output(std::string_view name, ValueId value);

  // The names in `values` change by these only: find_value looks them up in a table. None checks a
  // name; check() does.
  ValueId append_value(Value value);
  void rename_value(ValueId value, std::string name);
  void replace_values(IdVector<ValueId, Value> values);

  const TensorType& type(ValueId value) const { return values.at(value).type; }
  ValueId find_value(std::string_view name) const;  // none when absent
  ParamId find_param(std::string_view name) const;
  const GraphOutput* find_output(std::string_view name) const;  // null when absent

  // Text form; parse_graph(print()) gives an equal graph, unless an operation is a callback: no
  // text has those.
  std::string print() const;
  void check()
      const;  // SSA, order, arity, types: throws DS_ERROR_INVALID_ARGUMENT naming node and operand

 private:
  struct NameHash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, ValueId, NameHash, std::equal_to<>> id_of_name_;
};

Graph parse_graph(std::string_view text);

// Appends the backward part: gradients of scalar `loss` by every parameter (Parameter::grad; none
// where it is frozen or the loss does not depend on it) and, in `input_grads`, by the named values.
// The seed is a `fill` of 1. Contributions to one value are summed with `add` in order of
// decreasing consumer position.
void differentiate(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt = {},
                   std::vector<ValueId>* input_grads = nullptr);

}  // namespace ds
