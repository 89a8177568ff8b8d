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
  // For each operand, whether the gradient of the loss with respect to the operand is needed.
  std::vector<bool> wanted;

  // Returns the gradient of result 0. Throws if another result has a gradient: this function is for
  // operations whose other results are only kept for the backward part.
  ValueId first_grad() const;
  // Appends a node whose result i is the gradient of forward operand `inputs[i]`, named after it
  // ("d.x"). Returns the first result. If none of `inputs` is wanted, appends nothing and returns a
  // value that does not exist.
  ValueId emit(std::string_view op, const std::vector<ValueId>& in, Attrs attrs,
               const std::vector<size_t>& inputs);
};

// The arguments of a decode rule, by which an operation continues a text. `node` is a node of
// `from`. The rule appends to `graph` a form of the operation that receives the rows of a text in
// pieces, and returns the first result of that form.
struct DecodeContext {
  Graph& graph;
  const Graph& from;
  const Node& node;
  // The node's operands in `graph`, as many as decode_inputs returns.
  std::vector<ValueId> in;
  // The number of tokens of the longest text.
  int64_t positions;
  // A value i32[n]: the position of each row in its text.
  ValueId places;
  // Returns a value i32[1] that holds the number of tokens of the text. Empty if rules must not use
  // the length.
  const std::function<ValueId()>& length;
  const std::string& name() const { return from.values[node.out[0]].name; }
};

// The rows of the operands on which a row of a result depends.
enum class Rows : int8_t {
  // A row of the result may depend on any rows.
  mixed = 0,
  // Row r of the result depends on row r of the operands, and on parameters.
  same,
  // As `same`, and operand 0 is the only operand with rows.
  same_of_one
};

// The operand number `ids` holds ids, which select along dimension `dim` of operand `from`.
struct IdOperand {
  size_t ids, from, dim;
  // True for the targets of a loss: -100 selects nothing, and the result depends on the number of
  // rows with a target.
  bool targets = false;
};

// An operand that holds for each row the first row of its document: element r is r or equal to
// element r - 1, and no document is longer than `most` rows.
struct DocumentsOperand {
  size_t operand;
  int64_t most;
};

// An operand or a result. `type` is an element type and a shape, such as "T[n,C]". T is a floating
// type, the same for all operands of a node; A is f32, or f64 if T is f64. `least` and `most` bound
// how often the operand occurs; an operand with `least` 0 is optional.
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

// The kind of an attribute's value. A flag is the integer 0 or 1, a number is a real or an integer,
// and one_of is a string of AttrDef::words.
enum class AttrKind : int8_t { integer = 0, number, text, one_of, flag };
// Returns the name that op_schema() shows, such as "integer".
const char* attr_kind_name(AttrKind kind);

// An attribute of an operation.
struct AttrDef {
  std::string name;
  AttrKind kind = AttrKind::integer;
  std::string doc;
  std::vector<std::string> words = {};
  bool required = true;
  // The value of an absent optional attribute. Without a value here, `doc` says what its absence
  // means.
  std::optional<Attrs::Value> otherwise = {};
};

// One row of the op table: everything that the compile side knows of an operation. A row needs no
// kernel.
struct OpDef {
  std::string name;
  // A description, which docs/reference/ops.md shows.
  std::string doc;
  // No two forms accept the same number of operands.
  std::vector<OpForm> forms;
  std::vector<AttrDef> attrs;
  // Returns the types of the results. Throws DS_ERROR_INVALID_ARGUMENT, naming the operation and
  // what does not fit.
  std::function<std::vector<TensorType>(std::span<const TensorType> in, const Attrs& attrs)> infer;
  // Appends the backward part of a node and returns the gradients of its operands. Empty if the
  // operation is not differentiable; requesting its gradient is then an error.
  std::function<std::vector<ValueId>(BackwardContext&)> backward;
  // Returns the number of floating-point operations at extent n. A multiplication and an addition
  // count 1 each, an exponential or tanh 4.
  std::function<double(std::span<const TensorType> in, const Attrs& attrs, int64_t n)> flops;
  // True if the flops are products of matrices, which run at the machine's rate for the operands'
  // type. All other arithmetic is in f32.
  bool products = false;
  // Returns the number of bytes read at extent n. If empty, all bytes of every operand are read.
  std::function<double(std::span<const TensorType> in, const Attrs& attrs, int64_t n)> read_bytes =
      {};
  // True if the last result is the last operand with some rows replaced. If the operand is an input
  // of the graph with no other reader, such as a cache, the compiler gives operand and result the
  // same memory.
  bool updates_last = false;
  Rows rows = Rows::mixed;
  // True if computing the result again takes less time than storing and reading it.
  bool cheap = false;
  // See InstrDef::follows_state.
  bool follows_state = false;
  // Absent if the operation has no operand of ids.
  std::optional<IdOperand> ids;
  // Returns the documents operand of a node with `operands` operands, or nothing if the node has
  // none. Empty if no node of the operation has one.
  std::function<std::optional<DocumentsOperand>(size_t operands, const Attrs& attrs)> documents =
      {};
  // Appends the form of the operation that continues a text. If empty, the operation itself is used
  // if `rows` is not mixed; otherwise a graph with this operation cannot continue a text.
  std::function<ValueId(DecodeContext&)> decode;
  // Returns the number of leading operands that `decode` reads. If empty, it reads all.
  std::function<size_t(const Node& node)> decode_inputs;
  // Facts for fusion. `activation` returns the name of an activation as attribute `act` of glu.
  // `gated` is the operation into which this one is fused with an activation whose result is an
  // operand, and `over_linear` the operation into which it is fused with a linear whose result is
  // operand 0. `linear` is true for such a linear.
  std::function<std::string(const Attrs& attrs)> activation;
  std::string gated, over_linear;
  bool linear = false;
  // True for operations whose nodes carry a CustomOp. ds_graph_op and text forms cannot add them.
  bool by_callback = false;

  // Returns null if no form has that number of operands.
  const OpForm* form(size_t operands) const;
  // Returns the number of results that any node may read. Later results are scratch memory of the
  // kernel, which is planned like any result and which only the backward part may read. If the
  // return value is at least the number of results, no result is scratch memory.
  size_t results(size_t operands) const;
};

// Returns the row of that name, or null for an unknown name.
const OpDef* find_op(std::string_view name);
// Returns the row of that name. Throws for an unknown name, suggesting the nearest one.
const OpDef& op(std::string_view name);
// Returns every row of the library except the operations by callback, in a fixed order.
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
