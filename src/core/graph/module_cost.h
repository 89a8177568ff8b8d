#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace ds {

// What DeepSpeed's flops profiler counts of a forward operation (the recordings of deepspeed 0.19.8
// in tests/data/semantics/flops_profile.json), at extent n: products as 2 operations for each
// multiply-accumulate without their bias, the bias of a transposed product (GPT-2's Conv1D, an
// addmm) once; attention as its two products of all pairs and a softmax, 5 for each element of a
// layer norm (4 where it has no parameters), 1 for each element of relu and SiLU, also as a gate.
// Nothing for what Hugging Face's models write with operators or functions that are not counted:
// sums, rotations, RMS norms, GELU, tanh.
struct ModuleCost {
  double flops = 0, macs = 0;
};
ModuleCost forward_cost(const Graph& graph, const Node& node, int64_t n);

// The module that a node belongs to, by names: what a forward node makes is named after it, and a
// backward node reads the gradient of that. "transformer.h.0.attn.c_attn".
std::string module_of(const Graph& graph, NodeId node);
// "transformer.h.0.attn.c_attn" of "transformer.h.0.attn.c_attn.weight".
std::string module_of_param(const std::string& param);

// The tree of a graph's modules in the order of its nodes, a parent before its children. The first
// is the model,
// "".
struct Module {
  std::string path;
  int depth = 0;       // components of the path
  int64_t params = 0;  // elements, each once where a parameter is shared
  ModuleCost cost;     // of a forward pass of n rows; children included, as in params
};
std::vector<Module> modules_of(const Graph& forward, int64_t n);

}  // namespace ds
