#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace ds {

// Increases when an operation changes its meaning or is removed.
inline constexpr int kOpset = 1;

// The arguments of a backward rule. The rule appends nodes to `graph` and returns one gradient
// value for each forward operand; a value that does not exist means that no gradient flows to that
// operand or that none is wanted.
struct BackwardContext {
  Graph& graph;
  // A copy of the forward node, since graph.nodes may reallocate.
  const Node& node;
  // One gradient for each result; at least one of them exists.
  std::vector<ValueId> output_grads;
  // For each operand: whether the gradient of the loss with respect to it is needed.
  std::vector<bool> wanted;

  // Returns the gradient of result 0, for operations whose other results are only kept for the
  // backward part. Throws if one of those has a gradient.
  ValueId first_grad() const;
  // Appends a node whose result i is the gradient of forward operand `inputs[i]`, named after it
  // ("d.x"). Returns the first result. If none of `inputs` is wanted, appends nothing and returns a
  // value that does not exist.
  ValueId emit(std::string_view op, const std::vector<ValueId>& in, Attrs attrs,
               const std::vector<size_t>& inputs);
};

// The arguments of a decode rule, which makes an operation continue a text. The rule appends to
// `graph` the form of `node` (a node of `from`) that gets the rows of a text in pieces, and returns
// the first result of that form.
struct DecodeContext {
  Graph& graph;
  const Graph& from;
  const Node& node;
  // The node's operands in `graph`, as many as decode_inputs returns.
  std::vector<ValueId> in;
  // Number of tokens of the longest text.
  int64_t positions;
  // A value i32[n]: the position of each row in its text.
  ValueId places;
  // Returns a value i32[1]: the number of tokens of the text. Empty if a rule may not use the
  // length.
  const std::function<ValueId()>& length;
  const std::string& name() const { return from.values[node.out[0]].name; }
};

// The rows of the operands on which a row of a result depends.
enum class Rows : int8_t {
  // Any rows of the operands.
  mixed = 0,
  // For row r of the result: row r of the operands, and parameters.
  same,
  // For row r of the result: row r of operand 0, which is the only operand with rows.
  same_of_one
};

// An operand of ids that select along dimension `dim` of operand `from`.
struct IdOperand {
  size_t ids, from, dim;
  // True for the targets of a loss: -100 selects nothing, and the result depends on the number of
  // rows with a target.
  bool targets = false;
};

// An operand that contains the first row of each row's document: element r is r or equals element r
// - 1, and no document is longer than `most` rows.
struct DocumentsOperand {
  size_t operand;
  int64_t most;
};

// An operand or a result. `type` is an element type and a shape, such as "T[n,C]". T is a floating
// type, the same for all operands of a node; A is f32, or f64 if T is f64. `least` 0 means that it
// may be absent.
struct OperandDef {
  std::string name;
  std::string type;
  std::string doc;
  int least = 1, most = 1;
};

// One list of operands that an operation accepts. The forms of an operation differ in the number of
// operands.
struct OpForm {
  // Empty for the usual form.
  std::string name;
  std::vector<OperandDef> operands, results;

  int least() const;
  int most() const;
  // Returns the definition of each of `count` operands.
  std::vector<const OperandDef*> places(size_t count) const;
};

// flag: the integer 0 or 1. number: a real or an integer. one_of: a string of AttrDef::words.
enum class AttrKind : int8_t { integer = 0, number, text, one_of, flag };
const char* attr_kind_name(AttrKind kind);  // "integer"

struct AttrDef {
  std::string name;
  AttrKind kind = AttrKind::integer;
  std::string doc;
  std::vector<std::string> words = {};
  bool required = true;
  // The meaning of an absent attribute. Without a value here, `doc` describes it.
  std::optional<Attrs::Value> otherwise = {};
};

// One row of the op table: everything that the compile side knows of an operation. It needs no
// kernel.
struct OpDef {
  std::string name;
  // One sentence, which docs/reference/ops.md shows.
  std::string doc;
  // No two forms accept the same number of operands.
  std::vector<OpForm> forms;
  std::vector<AttrDef> attrs;
  // Returns the types of the results. Throws DS_ERROR_INVALID_ARGUMENT, naming the operation, the
  // operand and both shapes.
  std::function<std::vector<TensorType>(std::span<const TensorType> in, const Attrs& attrs)> infer;
  // Appends the backward part of a node. Empty if the operation is not differentiable; requesting
  // its gradient then is an error.
  std::function<std::vector<ValueId>(BackwardContext&)> backward;
  // Returns the number of floating-point operations at extent n. A multiplication and an addition
  // count 1 each, an exponential or tanh 4.
  std::function<double(std::span<const TensorType> in, const Attrs& attrs, int64_t n)> flops;
  // True if the operations are products of operands, which run at the machine's rate for the
  // operands' type. All other arithmetic is in f32.
  bool products = false;
  // Returns the bytes read at extent n. Empty: all bytes of every operand.
  std::function<double(std::span<const TensorType> in, const Attrs& attrs, int64_t n)> read_bytes =
      {};
  // True if the last result is the last operand with some rows replaced. If that operand has a
  // buffer of its own, the compiler gives operand and result the same memory.
  bool updates_last = false;
  Rows rows = Rows::mixed;
  // True if computing the result again takes less time than storing and reading it.
  bool cheap = false;
  // See InstrDef::follows_state.
  bool follows_state = false;
  // Absent if the operation has no operand of ids.
  std::optional<IdOperand> ids;
  // Returns the documents operand of a node with so many operands. Empty, or returning nothing: the
  // node has none.
  std::function<std::optional<DocumentsOperand>(size_t operands, const Attrs& attrs)> documents =
      {};
  // Appends the form of the operation that continues a text. Empty: the operation itself is used if
  // rows are `same`; otherwise text cannot be continued through it.
  std::function<ValueId(DecodeContext&)> decode;
  // Returns the number of leading operands that `decode` reads. Empty: all.
  std::function<size_t(const Node& node)> decode_inputs;
  // Facts for fusion. `activation` returns the name of an activation in attribute `act` of glu.
  // `gated` names the operation that this one becomes if an operand is the result of an activation;
  // `over_linear` the one that it becomes if operand 0 is the result of a linear. `linear` is true
  // for such a linear.
  std::function<std::string(const Attrs& attrs)> activation;
  std::string gated, over_linear;
  bool linear = false;
  // True for operations whose nodes carry a CustomOp. ds_graph_op and text forms cannot add them.
  bool by_callback = false;

  // Returns null if no form has that number of operands.
  const OpForm* form(size_t operands) const;
  // Returns the number of results that any node may read. Later results are scratch memory of the
  // kernel, planned like any result, which only the backward part may read. If the return value is
  // at least the number of results, none of them is scratch memory.
  size_t results(size_t operands) const;
};

// Returns the row of that name, or null for an unknown name.
const OpDef* find_op(std::string_view name);
// Returns the row of that name. Throws for an unknown name, suggesting the nearest one.
const OpDef& op(std::string_view name);
// Returns every row of the library, in a fixed order.
const std::vector<OpDef>& op_table();
// Adds a row for kernels that a plugin or a test registers. Its name must be new. Rows stay at
// their addresses.
const OpDef& add_op(OpDef row);
// Checks arity, operand ids and attributes of a future node and returns the types of its results.
std::vector<TensorType> infer_types(const Graph& graph, std::string_view op,
                                    std::span<const ValueId> in, const Attrs& attrs);
// Returns `base` if no value has that name, otherwise the first unused of "base.1", "base.2" and so
// on.
std::string unique_name(const Graph& graph, std::string_view base);

}  // namespace ds
