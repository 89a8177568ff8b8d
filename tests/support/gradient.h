#pragma once
#include <vector>

#include "support/interpret.h"

namespace ds::test {

// Largest |difference quotient - gradient| over `elements` of value `x` (all when empty), relative
// to the largest |gradient| of x (1 when that is below 1e-12). graph is f64 and differentiated;
// inputs and parameters of `run` are set. Central differences with step 1e-5.
double gradient_error(Interpreter& run, const Graph& graph, ValueId loss, ValueId x, ValueId grad,
                      std::vector<int64_t> elements = {});

}  // namespace ds::test
