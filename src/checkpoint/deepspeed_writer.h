#pragma once
#include <string>

#include "checkpoint/state_source.h"

namespace ds {

// DeepSpeed's universal layout below `folder`, which is made: DeepSpeed 0.19.8 loads it at any
// stage and number of ranks with checkpoint.load_universal. latest_universal, which names the rest,
// comes last. step_tensor: the optimizer that loads it counts steps in a tensor, as those of torch
// do, and not in an integer, as DeepSpeed's own do.
void write_universal(StateSource& source, const std::string& folder, bool step_tensor);

}  // namespace ds
