#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace ds {

// The cost that DeepSpeed's flops profiler counts for a forward operation at extent n (recorded
// from deepspeed 0.19.8 in tests/data/semantics/flops_profile.json). A product counts 2 operations
// for each multiply-accumulate and nothing for its bias, except that the bias of a transposed
// product (GPT-2's Conv1D, an addmm) counts once. Attention counts its two products over all pairs
// of rows, and its softmax. A layer norm counts 5 for each element (4 without parameters), relu,
// relu2 and SiLU 1, also as a gate. Operations for which Hugging Face's models use functions that
// the profiler does not patch count nothing: sums, rotations, RMS norms, GELU, tanh.
struct ModuleCost {
  double flops = 0, macs = 0;
};
ModuleCost forward_cost(const Graph& graph, const Node& node, int64_t n);

// Returns the module to which a node belongs, such as "transformer.h.0.attn.c_attn", according to
// names. The result of a forward node has the name of its module, and a backward node usually reads
// the gradient of such a result.
std::string module_of(const Graph& graph, NodeId node);
// Returns "transformer.h.0.attn.c_attn" for "transformer.h.0.attn.c_attn.weight".
std::string module_of_param(const std::string& param);

// One module in the tree of a graph's modules. modules_of() lists them in the order of the graph's
// nodes, a parent before its children. The first is the model itself, with the path "".
struct Module {
  std::string path;
  // The number of components of the path.
  int depth = 0;
  // The number of parameter elements. Those of a shared parameter count once.
  int64_t params = 0;
  // The cost of a forward pass of n rows. Both `params` and `cost` include the children.
  ModuleCost cost;
};
std::vector<Module> modules_of(const Graph& forward, int64_t n);

}  // namespace ds
