#pragma once
#include <string>

#include "checkpoint/state_source.h"

namespace ds {

// Writes DeepSpeed's universal layout into a new folder `folder`. DeepSpeed 0.19.8 loads it at any
// stage and number of ranks with checkpoint.load_universal. The file latest_universal, which makes
// the checkpoint visible, is written last. `step_tensor` says how the optimizer that will load the
// checkpoint stores its step count: as a tensor, like torch's optimizers, or as an integer, like
// DeepSpeed's own. Throws DS_ERROR_UNSUPPORTED for states of Muon, and for a parameter whose name
// cannot be that of a folder.
void write_universal(StateSource& source, const std::string& folder, bool step_tensor);

}  // namespace ds
