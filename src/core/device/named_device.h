#pragma once
#include <memory>
#include <string_view>

#include "core/device/device.h"

namespace ds {

// Creates the device that a configuration names: "cpu" is the memory and threads of the process;
// "separate" is the device in software that tests use; "cuda:N" is GPU N, through libds_cuda.so;
// "cuda" is the GPU whose index is `local_rank` modulo the number of GPUs that the process sees.
// With tf32, a GPU may round the operands of f32 products to TF32. Throws DS_ERROR_UNSUPPORTED for
// any other name, and, with the reason, for a device that is not available.
std::unique_ptr<Device> make_device(std::string_view name, bool tf32 = false, int local_rank = 0);

}  // namespace ds
