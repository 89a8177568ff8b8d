#include "passes/decode.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/graph/ops/rope_length.h"

namespace ds {
namespace {

// Operations that make each row of their result from the same row of their operands and from parameters.
constexpr std::array<std::string_view, 20> kByRow = {
    "embedding", "position", "linear", "layer_norm", "rms_norm",   "gelu", "relu",
    "silu",      "glu",      "tanh",   "relu2",      "laplace",    "mul",  "scale",
    "softcap",   "rope",     "add",    "top_gates",  "scale_rows", "cast"};
// Those of one such operand, operand 0.
constexpr std::array<std::string_view, 12> kOfOneRow = {"linear",  "layer_norm", "rms_norm", "gelu",
                                                        "relu",    "silu",       "tanh",     "relu2",
                                                        "laplace", "scale",      "softcap",  "cast"};

template <size_t kCount>
bool among(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

size_t at(ValueId value) { return static_cast<size_t>(value); }

// The attributes of an attention that a cached_attention has, too.
Attrs cached(const Attrs& attrs) {
  Attrs out;
  for (const auto& [key, value] : attrs.items()) {
    if (key != "seq" && key != "causal" && key != "dropout" && key != "op") out.set(key, value);
  }
  return out;
}

bool masked(const Node& node) { return node.op == "attention" && node.in.size() % 2 == 0; }

class Rewriter {
 public:
  Rewriter(const Graph& from, const DecodeOptions& options)
      : from_(from),
        options_(options),
        readers_(from.values.size(), 0),
        needed_(from.nodes.size(), 0),
        of_(from.values.size(), -1) {}

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
      size_t count = node.in.size() - (masked(node) ? 1 : 0);
      for (size_t k = 0; k < count; ++k) read(node.in[k]);
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
      if (!among(kOfOneRow, node.op) || readers_[at(value)] != 1) return value;
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
    if (node.op == "dropout") {
      of_[at(node.out[0])] = of_[at(node.in[0])];
    } else if (node.op == "attention") {
      attention(node);
    } else if (among(kByRow, node.op)) {
      row_wise(node);
    } else {
      raise(DS_ERROR_UNSUPPORTED, "text cannot be continued with value %{}: operation '{}' mixes rows",
            name(node.out[0]), node.op);
    }
  }

  std::vector<ValueId> operands(const Node& node, size_t count) const {
    std::vector<ValueId> in;
    for (size_t k = 0; k < count; ++k) in.push_back(of_[at(node.in[k])]);
    return in;
  }

  void place(const Node& node, ValueId first) {
    for (size_t k = 0; k < node.out.size(); ++k) of_[at(node.out[k])] = first + static_cast<ValueId>(k);
  }

  void row_wise(const Node& node) {
    std::vector<ValueId> in = operands(node, node.in.size());
    if (node.op == "position") {  // rows of its table by place instead of by row
      ValueId rows = to_.add("embedding", {in[1], positions_}, {}, name(node.out[0]) + ".rows");
      return place(node, to_.add("add", {in[0], rows}, {}, name(node.out[0])));
    }
    if (node.op == "rope") {
      in.push_back(positions_);
      if (options_.by_length && depends_on_length(node.attrs)) in.push_back(length());
    }
    place(node, to_.add(node.op, in, node.attrs, name(node.out[0])));
  }

  ValueId length() {
    if (length_ < 0) length_ = to_.add_input(kDecodeLength, {DS_DTYPE_I32, {1}});
    return length_;
  }

  void attention(const Node& node) {
    const std::string& y = name(node.out[0]);
    if (node.attrs.integer_or("causal", 1) == 0) {
      raise(DS_ERROR_UNSUPPORTED,
            "text cannot be continued with attention %{}: rows see later rows (causal 0)", y);
    }
    if (masked(node) && from_.values[at(node.in.back())].producer >= 0) {
      raise(DS_ERROR_UNSUPPORTED, "text cannot be continued with attention %{}: mask %{} is computed", y,
            name(node.in.back()));
    }
    std::vector<ValueId> in = operands(node, node.in.size() - (masked(node) ? 1 : 0));
    int64_t heads = node.attrs.integer("heads"), groups = node.attrs.integer_or("kv_heads", 0);
    if (groups == 0) groups = heads;
    const TensorType& type = from_.type(node.out[0]);
    int64_t depth = type.shape[1].extent / heads;
    in.push_back(positions_);
    in.push_back(to_.add_input(y + ".cache", {type.dtype, {2 * groups, options_.positions, depth}}));
    of_[at(node.out[0])] = to_.add("cached_attention", in, cached(node.attrs), y);
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
};

}  // namespace

Graph decode_graph(const Graph& forward, const DecodeOptions& options) {
  require(options.positions >= 1, "positions must be at least 1, got {}", options.positions);
  require(options.chunk >= 1, "chunk must be at least 1, got {}", options.chunk);
  return Rewriter(forward, options).run();
}

}  // namespace ds
