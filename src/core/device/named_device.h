#pragma once
#include <memory>
#include <string_view>

#include "core/device/device.h"

namespace ds {

// The device that a configuration names: "cpu", the memory and threads of the process, "separate",
// "cuda:N" of libds_cuda.so, or "cuda", the GPU whose number is `local_rank` modulo the number of
// GPUs that the process sees. Throws DS_ERROR_UNSUPPORTED for any other name, and with the reason
// where it is not there. tf32: a GPU may round the operands of f32 products to TF32.
std::unique_ptr<Device> make_device(std::string_view name, bool tf32 = false, int local_rank = 0);

}  // namespace ds
