#include "core/device/named_device.h"

#include <cstdint>
#include <optional>

#include "core/base/device_name.h"
#include "core/base/error.h"
#include "core/device/host_device.h"
#include "core/device/plugin_device.h"
#include "core/device/separate_device.h"

namespace ds {
// cuda_number() parses "cuda:N". kOwnCuda is "cuda", which selects a GPU by the local rank.
std::unique_ptr<Device> make_device(std::string_view name, bool tf32, int local_rank) {
  if (name == "cpu") return std::make_unique<HostDevice>();
  if (name == "separate") return std::make_unique<SeparateDevice>();
  if (std::optional<int32_t> number = cuda_number(name))
    return make_plugin_device("cuda", *number, tf32);
  if (name == kOwnCuda)
    return make_plugin_device("cuda", own_plugin_device("cuda", local_rank), tf32);
  raise(DS_ERROR_UNSUPPORTED, "this build has no device '{}'", name);
}

}  // namespace ds
