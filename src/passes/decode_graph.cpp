// Builds the decode graph from a forward graph: each node that the logits need is added again by
// the decode rule of its row (core/graph/ops.h) or, if it works row by row, unchanged. Everything
// after the last operation that reads other rows, usually only the head, gets only the last row.
#include "passes/decode_graph.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

class Rewriter {
 public:
  Rewriter(const Graph& from, const DecodeOptions& options)
      : from_(from),
        options_(options),
        readers_(from.values.size(), 0),
        needed_(from.nodes.size(), 0),
        of_(from.values.size()) {
    if (options.by_length) length_of_text_ = [this] { return length(); };
  }

  Graph run() {
    ensure(!from_.backward_begin.exists(), "graph '{}' must be decoded before differentiate",
           from_.name);
    check_logits();
    find_needed();
    ValueId head = begin_of_head();
    start();
    for (NodeId i : from_.nodes.ids()) {
      if (!needed_[i]) continue;
      add(from_.nodes[i]);
      if (from_.nodes[i].out[0] == head) last_row(head);
    }
    to_.add_output(from_.outputs[1].name, of_[from_.outputs[1].value]);
    return std::move(to_);
  }

 private:
  const std::string& name(ValueId value) const { return from_.values[value].name; }

  void check_logits() const {
    if (from_.outputs.size() < 2) {
      raise(DS_ERROR_UNSUPPORTED,
            "graph '{}' must have logits as output 1 to continue text, but it has {} outputs",
            from_.name, from_.outputs.size());
    }
    const TensorType& type = from_.type(from_.outputs[1].value);
    if (type.shape.rank() != 2 || !type.shape[0].symbolic) {
      raise(DS_ERROR_UNSUPPORTED,
            "output 1 of graph '{}' must be logits [n,V] to continue text, got {}", from_.name,
            type.text());
    }
  }

  // Counts a reader and marks the producer as needed.
  void read(ValueId value) {
    ++readers_[value];
    NodeId producer = from_.values[value].producer;
    if (producer.exists()) needed_[producer] = 1;
  }

  // Marks the nodes that the logits need. Loss and masks are not among them.
  void find_needed() {
    read(from_.outputs[1].value);
    for (NodeId i = from_.nodes.last(); i.exists(); --i) {
      const Node& node = from_.nodes[i];
      if (!needed_[i]) continue;
      for (size_t k = 0; k < inputs_of(node); ++k) read(node.in[k]);
    }
  }

  // Returns the first value whose last row suffices, because every operation between it and the
  // logits works on single rows.
  ValueId begin_of_head() const {
    ValueId value = from_.outputs[1].value;
    while (true) {
      NodeId producer = from_.values[value].producer;
      if (!producer.exists()) return value;
      const Node& node = from_.nodes[producer];
      if (op(node.op).rows != Rows::same_of_one || readers_[value] != 1) return value;
      value = node.in[0];
    }
  }

  void start() {
    to_.name = from_.name + ".decode";
    to_.bound = options_.chunk;
    for (ValueId input : from_.inputs) {
      if (readers_[input] > 0) of_[input] = to_.add_input(name(input), from_.type(input));
    }
    positions_ = to_.add_input(kDecodePositions, {DS_DTYPE_I32, {Dim::n()}});
    for (const Parameter& p : from_.params) {
      of_[p.value] = to_.add_param(p.name, from_.type(p.value), p.init);
    }
  }

  // Adds the decode form of a needed node. The results of the form have consecutive ids.
  void add(const Node& node) {
    const OpDef& row = op(node.op);
    std::vector<ValueId> in;
    for (size_t k = 0; k < inputs_of(node); ++k) in.push_back(of_[node.in[k]]);
    ValueId first;
    if (row.decode) {
      DecodeContext context{to_,        from_,          node, std::move(in), options_.positions,
                            positions_, length_of_text_};
      first = row.decode(context);
    } else if (row.rows != Rows::mixed) {
      first = to_.add(node.op, in, node.attrs, name(node.out[0]));
    } else {
      raise(DS_ERROR_UNSUPPORTED,
            "text cannot be continued with value %{}: operation '{}' mixes rows", name(node.out[0]),
            node.op);
    }
    for (size_t k = 0; k < node.out.size(); ++k) of_[node.out[k]] = first + static_cast<int32_t>(k);
  }

  // Returns the number of operands that a node still reads in the decode graph.
  static size_t inputs_of(const Node& node) {
    const OpDef& row = op(node.op);
    return row.decode_inputs ? row.decode_inputs(node) : node.in.size();
  }

  // The input is added when it is first requested, so that a graph has it only if some rope needs
  // it.
  ValueId length() {
    if (!length_.exists()) length_ = to_.add_input(kDecodeLength, {DS_DTYPE_I32, {1}});
    return length_;
  }

  void last_row(ValueId value) {
    of_[value] = to_.add("last_row", {of_[value]}, {}, name(value) + ".last");
  }

  const Graph& from_;
  const DecodeOptions& options_;
  Graph to_;
  // The number of times that the logits and the nodes they depend on read each value.
  IdVector<ValueId, int> readers_;
  IdVector<NodeId, char> needed_;
  // The value of `to_` that replaces each value of `from_`.
  IdVector<ValueId, ValueId> of_;
  ValueId positions_, length_;
  // The function that DecodeContext::length refers to; empty without by_length.
  std::function<ValueId()> length_of_text_;
};

}  // namespace

Graph decode_graph(const Graph& forward, const DecodeOptions& options) {
  require(options.positions >= 1, "positions must be at least 1, got {}", options.positions);
  require(options.chunk >= 1, "chunk must be at least 1, got {}", options.chunk);
  return Rewriter(forward, options).run();
}

}  // namespace ds
