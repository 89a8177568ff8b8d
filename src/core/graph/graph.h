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
// The index of a parameter in Graph::params. The C interface uses the same index.
using ParamId = Id<struct ParamTag>;
using InputId = Id<struct InputTag>;

// Element type and shape of a value.
struct TensorType {
  DType dtype = DS_DTYPE_NONE;
  Shape shape;
  bool operator==(const TensorType&) const = default;
  // Returns the text form, such as "bf16[n,384]".
  std::string text() const;
};

// One SSA value. `name` is unique in the graph and has no leading '%'.
struct Value {
  std::string name;
  TensorType type;
  // The node that computes the value. The id does not exist for an input or a parameter.
  NodeId producer;
};

// One operation of the graph, with its operands, results and attributes.
struct Node {
  // A name of the op table (core/graph/ops).
  std::string op;
  std::vector<ValueId> in;
  std::vector<ValueId> out;
  Attrs attrs;
  // The object of a custom operation; null for all other nodes.
  std::shared_ptr<const CustomOp> custom = nullptr;
  bool operator==(const Node&) const = default;
};

// The initial values of a parameter: "zeros" or "ones" (scale is unused), "normal" (scale is the
// standard deviation) or "uniform" (from -scale to scale).
struct Init {
  std::string kind = "zeros";
  double scale = 0;
  bool operator==(const Init&) const = default;
};

// A tensor of the model. Its index in Graph::params is its identity on every rank.
struct Parameter {
  // For example "h.3.attn.qkv.weight".
  std::string name;
  // The parameter's value, which has the type of the part that this rank holds.
  ValueId value;
  Init init;
  // The value of the gradient, which differentiate() sets.
  ValueId grad;
  // True for a parameter that gets no gradient. The text form does not contain this field.
  bool frozen = false;
  // The part of a larger tensor that the rank holds, if the parameter is not whole. Ids, names and
  // random numbers refer to the larger tensor. The text form does not contain this field.
  std::optional<ParamSlice> slice;
  // Mesh axes over which the gradients of this parameter are summed. If empty, the axes of `data`.
  // The text form does not contain this field.
  std::vector<std::string> reduced_over;
};

// A value that the graph computes for its user.
struct GraphOutput {
  // Unique among the outputs, for example "logits".
  std::string name;
  ValueId value;
  bool operator==(const GraphOutput&) const = default;
};

// A model: nodes in a valid execution order. Functions of nn/, calls of ds_graph_op or
// parse_graph() build it; afterwards only differentiate() and passes change it.
class Graph {
 public:
  std::string name = "graph";
  // The largest value of n.
  int64_t bound = 1;
  IdVector<ValueId, Value> values;
  IdVector<NodeId, Node> nodes;
  IdVector<InputId, ValueId> inputs;
  IdVector<ParamId, Parameter> params;
  // In a training graph, outputs[0] is the loss.
  std::vector<GraphOutput> outputs;
  // The first node of the backward part. The id does not exist before differentiate().
  NodeId backward_begin;
  // A value f32[] of the forward part: the weight of the micro-step's loss in the loss of the step.
  // If the id does not exist, all micro-steps have the same weight. The text form does not contain
  // this field.
  ValueId loss_weight;

  ValueId add_input(std::string_view name, TensorType type);
  ValueId add_param(std::string_view name, TensorType type, Init init);
  // Appends a node: checks arity, types and attributes against the op table and infers the types of
  // the results. Results are called `name`, `name.1` and so on; an empty name is replaced by a new
  // one. Returns the first result.
  ValueId add(std::string_view op, const std::vector<ValueId>& in, Attrs attrs = {},
              std::string_view name = "");
  // Appends a node of a custom operation.
  ValueId add_custom(std::shared_ptr<const CustomOp> custom, const std::vector<ValueId>& in);
  void add_output(std::string_view name, ValueId value);

  // Only these functions may change names in `values`, because they also update the table in which
  // find_value() looks names up. They do not check names; check() does.
  ValueId append_value(Value value);
  void rename_value(ValueId value, std::string name);
  void replace_values(IdVector<ValueId, Value> values);

  const TensorType& type(ValueId value) const { return values.at(value).type; }
  // Returns an id that does not exist if no value has that name.
  ValueId find_value(std::string_view name) const;
  ParamId find_param(std::string_view name) const;
  // Returns null if no output has that name.
  const GraphOutput* find_output(std::string_view name) const;

  // Returns the text form. parse_graph() reads it back, without the fields that the text form does
  // not contain. It refuses custom operations, since a text has no callbacks.
  std::string print() const;
  // Checks SSA form, order, arity, names and types. Throws DS_ERROR_INVALID_ARGUMENT, naming the
  // node, value or output.
  void check() const;

 private:
  struct NameHash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, ValueId, NameHash, std::equal_to<>> id_of_name_;
};

// Parses the text form. Throws DS_ERROR_INVALID_ARGUMENT, naming the line, if it is malformed.
Graph parse_graph(std::string_view text);

// Appends the backward part: the gradients of the scalar `loss` with respect to every parameter
// (Parameter::grad, which does not exist if the parameter is frozen or the loss does not depend on
// it) and with respect to the values `wrt`, returned in `input_grads`. The gradient of the loss is
// a `fill` of 1. If a value has several consumers, their contributions are summed with `add`, the
// last consumer's first, so that the order of sums is fixed.
void differentiate(Graph& graph, ValueId loss, const std::vector<ValueId>& wrt = {},
                   std::vector<ValueId>* input_grads = nullptr);

}  // namespace ds
