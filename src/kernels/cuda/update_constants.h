#pragma once
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/update.h"

namespace ds::cuda {

// Starts the launch that forms the constants of an update, and returns where they will be: at the beginning
// of the launch's scratch. a: the rule and its attributes.
const UpdateConstants* start_constants(Launcher& launcher, const Arguments& c, ConstantsArgs a);

}  // namespace ds::cuda
