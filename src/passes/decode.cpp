#include "passes/decode.h"

#include <functional>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

size_t at(ValueId value) { return static_cast<size_t>(value); }

class Rewriter {
 public:
  Rewriter(const Graph& from, const DecodeOptions& options)
      : from_(from),
        options_(options),
        readers_(from.values.size(), 0),
        needed_(from.nodes.size(), 0),
        of_(from.values.size(), -1) {
    if (options.by_length) length_of_text_ = [this] { return length(); };
  }

  Graph run() {
    ensure(from_.backward_begin < 0, "graph '{}' is decoded after differentiate", from_.name);
    check_logits();
    find_needed();
    ValueId head = begin_of_head();
    start();
    for (size_t i = 0; i < from_.nodes.size(); ++i) {
      if (!needed_[i]) continue;
      add(from_.nodes[i]);
      if (from_.nodes[i].out[0] == head) last_row(head);
    }
    to_.add_output(of_[at(from_.outputs[1])]);
    return std::move(to_);
  }

 private:
  const std::string& name(ValueId value) const { return from_.values[at(value)].name; }

  void check_logits() const {
    if (from_.outputs.size() < 2) {
      raise(DS_ERROR_UNSUPPORTED,
            "graph '{}' must have logits as output 1 to continue text, it has {} outputs", from_.name,
            from_.outputs.size());
    }
    const TensorType& type = from_.type(from_.outputs[1]);
    if (type.shape.rank() != 2 || !type.shape[0].symbolic) {
      raise(DS_ERROR_UNSUPPORTED, "output 1 of graph '{}' must be logits [n,V] to continue text, got {}",
            from_.name, type.text());
    }
  }

  void read(ValueId value) {
    ++readers_[at(value)];
    NodeId producer = from_.values[at(value)].producer;
    if (producer >= 0) needed_[static_cast<size_t>(producer)] = 1;
  }

  void find_needed() {
    read(from_.outputs[1]);
    for (size_t i = from_.nodes.size(); i-- > 0;) {
      const Node& node = from_.nodes[i];
      if (!needed_[i]) continue;
      for (size_t k = 0; k < inputs_of(node); ++k) read(node.in[k]);
    }
  }

  // The value of which only the last row is wanted: before everything that works on single rows up to the
  // logits.
  ValueId begin_of_head() const {
    ValueId value = from_.outputs[1];
    while (true) {
      NodeId producer = from_.values[at(value)].producer;
      if (producer < 0) return value;
      const Node& node = from_.nodes[static_cast<size_t>(producer)];
      if (op(node.op).rows != Rows::same_of_one || readers_[at(value)] != 1) return value;
      value = node.in[0];
    }
  }

  void start() {
    to_.name = from_.name + ".decode";
    to_.bound = options_.chunk;
    for (ValueId input : from_.inputs) {
      if (readers_[at(input)] > 0) of_[at(input)] = to_.add_input(name(input), from_.type(input));
    }
    positions_ = to_.add_input(kDecodePositions, {DS_DTYPE_I32, {Dim::n()}});
    for (const Parameter& p : from_.params) {
      of_[at(p.value)] = to_.add_param(p.name, from_.type(p.value), p.init);
    }
  }

  void add(const Node& node) {
    const OpDef& row = op(node.op);
    std::vector<ValueId> in;
    for (size_t k = 0; k < inputs_of(node); ++k) in.push_back(of_[at(node.in[k])]);
    ValueId first;
    if (row.decode) {
      DecodeContext context{to_, from_, node, std::move(in), options_.positions, positions_, length_of_text_};
      first = row.decode(context);
    } else if (row.rows != Rows::mixed) {
      first = to_.add(node.op, in, node.attrs, name(node.out[0]));
    } else {
      raise(DS_ERROR_UNSUPPORTED, "text cannot be continued with value %{}: operation '{}' mixes rows",
            name(node.out[0]), node.op);
    }
    for (size_t k = 0; k < node.out.size(); ++k) of_[at(node.out[k])] = first + static_cast<ValueId>(k);
  }

  static size_t inputs_of(const Node& node) {
    const OpDef& row = op(node.op);
    return row.decode_inputs ? row.decode_inputs(node) : node.in.size();
  }

  ValueId length() {
    if (length_ < 0) length_ = to_.add_input(kDecodeLength, {DS_DTYPE_I32, {1}});
    return length_;
  }

  void last_row(ValueId value) {
    of_[at(value)] = to_.add("last_row", {of_[at(value)]}, {}, name(value) + ".last");
  }

  const Graph& from_;
  const DecodeOptions& options_;
  Graph to_;
  std::vector<int> readers_;  // of values, for the logits
  std::vector<char> needed_;
  std::vector<ValueId> of_;  // per value of from_
  ValueId positions_ = -1, length_ = -1;
  std::function<ValueId()> length_of_text_;  // DecodeContext::length
};

}  // namespace

Graph decode_graph(const Graph& forward, const DecodeOptions& options) {
  require(options.positions >= 1, "positions must be at least 1, got {}", options.positions);
  require(options.chunk >= 1, "chunk must be at least 1, got {}", options.chunk);
  return Rewriter(forward, options).run();
}

}  // namespace ds
