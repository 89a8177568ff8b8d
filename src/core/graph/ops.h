#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/graph/graph.h"

namespace ds {

// What a backward rule sees: it appends nodes to `graph` and returns one gradient value per forward input
// (-1: no gradient flows to that input).
struct BackwardContext {
  Graph& graph;
  const Node& node;                   // a copy of the forward node (graph.nodes may reallocate)
  std::vector<ValueId> output_grads;  // per output; -1: none
};

// One row of the op table: everything the compile side knows of an operation. No kernel is needed.
struct OpDef {
  std::string name;
  int min_inputs = 0;
  int max_inputs = 0;
  std::vector<std::string> attrs;  // known attribute names; others are refused
  // Output types from input types; throws DS_ERROR_INVALID_ARGUMENT naming op, operand and both shapes.
  std::function<std::vector<TensorType>(std::span<const TensorType> in, const Attrs& attrs)> infer;
  // Empty: not differentiable (refused by name when a gradient is asked for).
  std::function<std::vector<ValueId>(BackwardContext&)> backward;
  // Floating-point operations at extent n; bytes are the sum of operands.
  std::function<double(std::span<const TensorType> in, const Attrs& attrs, int64_t n)> flops;
};

const OpDef* find_op(std::string_view name);
const OpDef& op(std::string_view name);  // throws, with the nearest name as a suggestion
const std::vector<OpDef>& op_table();    // every row, in a fixed order
// Nearest of `names` by edit distance, "" if none is near: for "did you mean" in every message.
std::string suggest(std::string_view word, std::span<const std::string> names);

}  // namespace ds
