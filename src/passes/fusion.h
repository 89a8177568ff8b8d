#pragma once
#include "core/graph/graph.h"

namespace ds {

// Forward patterns that one operation computes: mul of silu, gelu or relu of one value with another
// becomes `glu`, when nothing else reads the activation. Before autodiff, whose rule for `glu` then
// needs no activation kept. What is no longer read stays for cse to drop.
void fuse(Graph& graph);

}  // namespace ds
