#include "passes/token_losses.h"

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/config/refuse.h"
#include "core/graph/ops.h"

namespace ds {
namespace {

constexpr const char* kKey = "inferred";

bool is_entropy(const Node& node) {
  return node.op == "cross_entropy" || node.op == "linear_cross_entropy";
}

// A preference loss reads the losses of single targets, so they are already a value of the graph.
ValueId read_by_preference(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.op == "preference_loss") return node.in[0];
  }
  return {};
}

const Node& only_entropy(const Graph& graph) {
  const Node* found = nullptr;
  for (const Node& node : graph.nodes) {
    if (!is_entropy(node)) continue;
    if (found)
      refuse(kKey, "\"token_losses\" needs one cross_entropy; graph '{}' has several", graph.name);
    found = &node;
  }
  if (!found)
    refuse(kKey, "\"token_losses\" needs a cross_entropy; graph '{}' has none", graph.name);
  return *found;
}

}  // namespace

void infer_token_losses(Graph& graph) {
  ValueId losses = read_by_preference(graph);
  if (!losses.exists()) {
    const Node node = only_entropy(graph);
    Attrs attrs = node.attrs;
    attrs.set("reduction", std::string("none"));
    attrs.set("label_smoothing", 0.0);
    attrs.set("z_loss", 0.0);
    losses = graph.add(node.op, node.in, std::move(attrs), unique_name(graph, "token_losses"));
  }
  const GraphOutput output{"token_losses", losses};
  if (graph.outputs.size() < 2) {
    graph.outputs.push_back(output);
  } else {
    graph.outputs[1] = output;
  }
}

}  // namespace ds
