#pragma once
#include <vector>

#include "support/interpret.h"

namespace ds::test {

// Returns the largest |difference quotient - gradient| over `elements` of value `x` (if empty, all
// elements), relative to the largest |gradient| of x, or absolute if that is below 1e-12. `graph`
// must be an f64 graph that has been differentiated, and `run` must have its inputs and parameters
// set. Uses central differences with step 1e-5.
double gradient_error(Interpreter& run, const Graph& graph, ValueId loss, ValueId x, ValueId grad,
                      std::vector<int64_t> elements = {});

}  // namespace ds::test
