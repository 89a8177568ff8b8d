#pragma once
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/graph/graph.h"
#include "core/graph/ops.h"

namespace ds {

// A pattern of a node and of the nodes that compute some of its operands. `is` tests the node's row
// of the op table. Operands without a pattern may be any values.
struct Pattern {
  bool (*is)(const OpDef& row);
  // Patterns of the nodes that compute operands, by index of the operand.
  std::vector<std::pair<size_t, Pattern>> makers = {};
};

// A place in a graph that matches a pattern. Except for the root, only nodes of the match read the
// results of matched nodes (see RewriteRule::keeps_outputs).
struct RewriteMatch {
  const Graph& graph;
  // The matched nodes in the order of the pattern, depth first; the root comes first.
  std::vector<const Node*> nodes;
};

// A rule that replaces a few nodes by one node that computes the same values. Rules run before
// autodiff, so the backward part of the new node comes from its own row and need not keep the
// results of the replaced nodes.
struct RewriteRule {
  std::string name;
  Pattern pattern;
  // True if a matched operand may also be an output of the graph. A program that needs that output
  // computes it separately.
  bool keeps_outputs = false;
  std::function<bool(const RewriteMatch&)> condition;
  // Returns the node that replaces the root and has the root's results. rewrite() adds further
  // results of its operation.
  std::function<Node(const RewriteMatch&)> replacement;
};

// Replaces every match, at each node by the first rule that fits. Returns the number of
// replacements. Nodes without readers stay in the graph until cse drops them.
int rewrite(Graph& graph, std::span<const RewriteRule> rules);

}  // namespace ds
