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

// Grows when an operation changes its meaning or goes.
inline constexpr int kOpset = 1;

// What a backward rule sees: it appends nodes to `graph` and returns one gradient value per forward
// input (none: no gradient flows to that input, or none is wanted).
struct BackwardContext {
  Graph& graph;
  const Node& node;                   // a copy of the forward node (graph.nodes may reallocate)
  std::vector<ValueId> output_grads;  // per output; at least one is present.
  std::vector<bool> wanted;           // per input: whether the loss's gradient by it is needed

  // The gradient of output 0, for ops whose other outputs are only kept for the backward part;
  // throws when one of those has a gradient.
  ValueId first_grad() const;
  // Appends a node whose output i is the gradient of forward input `inputs[i]` and is named after
  // it ("d.x"). Returns the first output, or none without a node when none of `inputs` is wanted.
  ValueId emit(std::string_view op, const std::vector<ValueId>& in, Attrs attrs,
               const std::vector<size_t>& inputs);
};

// What a rule sees that continues a text: it appends to `graph` what `node` of `from` becomes when
// rows are fed in pieces, and returns its first output.
struct DecodeContext {
  Graph& graph;
  const Graph& from;
  const Node& node;
  std::vector<ValueId> in;  // the node's operands in `graph`, as many as decode_inputs says
  int64_t positions;        // tokens of the longest text
  ValueId places;           // i32[n]: the place of each row in its text
  const std::function<ValueId()>& length;  // i32[1]: the tokens of the text; empty: not to be asked
  const std::string& name() const { return from.values[node.out[0]].name; }
};

// Where a row of a result comes from.
enum class Rows : int8_t {
  mixed = 0,   // from any rows
  same,        // from the same row of the operands and from parameters
  same_of_one  // and operand 0 is the only one with rows
};

// An operand of ids, which select along a dimension of another operand.
struct IdOperand {
  size_t ids, from, dim;
  bool targets = false;  // of a loss: -100 selects nothing, and the result depends on all there is
};

// An operand that says where documents begin: in row r, r or what the row before has, and none is
// longer than `most` rows.
struct DocumentsOperand {
  size_t operand;
  int64_t most;
};

// An operand or a result. `type` is an element type and a shape, such as "T[n,C]": T is a floating
// type, the same one for all operands of a node; A is f32, or f64 where T is f64. `least` 0: it may
// be absent.
struct OperandDef {
  std::string name;
  std::string type;
  std::string doc;
  int least = 1, most = 1;
};

// One way of giving operands; ways of the same operation differ in how many there are.
struct OpForm {
  std::string name;  // "" of the usual one
  std::vector<OperandDef> operands, results;

  int least() const;
  int most() const;
  // Which operand stands at each of `count` places.
  std::vector<const OperandDef*> places(size_t count) const;
};

// flag: the integer 0 or 1. number: an integer, too. one_of: a text of AttrDef::words.
enum class AttrKind : int8_t { integer = 0, number, text, one_of, flag };
const char* attr_kind_name(AttrKind kind);  // "integer", ...

struct AttrDef {
  std::string name;
  AttrKind kind = AttrKind::integer;
  std::string doc;
  std::vector<std::string> words = {};
  bool required = true;
  std::optional<Attrs::Value> otherwise = {};  // what an absent one means; none: doc says it
};

// One row of the op table: everything the compile side knows of an operation. No kernel is needed.
struct OpDef {
  std::string name;
  std::string doc;            // one sentence
  std::vector<OpForm> forms;  // with numbers of operands that do not overlap
  std::vector<AttrDef> attrs;
  // Output types from input types; throws DS_ERROR_INVALID_ARGUMENT naming op, operand and both
  // shapes.
  std::function<std::vector<TensorType>(std::span<const TensorType> in, const Attrs& attrs)> infer;
  // Empty: not differentiable (refused by name when a gradient is asked for).
  std::function<std::vector<ValueId>(BackwardContext&)> backward;
  // Floating-point operations at extent n. A product and a sum are two, an exponential or tanh is
  // four.
  std::function<double(std::span<const TensorType> in, const Attrs& attrs, int64_t n)> flops;
  // The operations are products of operands, which run at the machine's rate for the operands'
  // type; of others, arithmetic is in f32.
  bool products = false;
  // Bytes read at extent n; empty: all of every input.
  std::function<double(std::span<const TensorType> in, const Attrs& attrs, int64_t n)> read_bytes =
      {};
  // The last output is the last input with some rows replaced: a program that finds that input in a
  // buffer of its own gives both this one place.
  bool updates_last = false;
  Rows rows = Rows::mixed;
  bool cheap = false;            // made again in less time than its result takes to keep and read
  bool follows_state = false;    // as InstrDef::follows_state
  std::optional<IdOperand> ids;  // absent: the operation has none
  // Of a node with so many operands; empty, or nothing: it has none.
  std::function<std::optional<DocumentsOperand>(size_t operands, const Attrs& attrs)> documents =
      {};
  // How a text is continued; empty: by the same operation where rows are the same, else not at all.
  std::function<ValueId(DecodeContext&)> decode;
  std::function<size_t(const Node& node)> decode_inputs;  // leading operands it reads; empty: all
  // Fusion. An activation's name as `act` of glu; an operation that becomes `gated` when an operand
  // is an activation's result, or `over_linear` when operand 0 is a linear's; that is such a
  // linear.
  std::function<std::string(const Attrs& attrs)> activation;
  std::string gated, over_linear;
  bool linear = false;
  bool by_callback = false;  // its nodes carry a CustomOp; not for ds_graph_op and not in a text

  const OpForm* form(size_t operands) const;  // null: it takes another number
  // Outputs from this one on are room for the kernel while it runs, planned like any result, which
  // only its backward part may read. At least as many as there are outputs: all of them are
  // results.
  size_t results(size_t operands) const;
};

const OpDef* find_op(std::string_view name);
const OpDef& op(std::string_view name);  // throws, with the nearest name as a suggestion
const std::vector<OpDef>& op_table();    // every row of the library, in a fixed order
// Enters a row for kernels that a plugin or a test registers; its name must be new. Rows stay where
// they are.
const OpDef& add_op(OpDef row);
// Checks arity, operand ids and attributes of a node-to-be and returns its output types.
std::vector<TensorType> infer_types(const Graph& graph, std::string_view op,
                                    std::span<const ValueId> in, const Attrs& attrs);
// `base` when no value has that name, else the first free of "base.1", "base.2", ...
std::string unique_name(const Graph& graph, std::string_view base);

}  // namespace ds
