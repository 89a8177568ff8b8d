#include "core/device/named_device.h"

#include "core/base/error.h"
#include "core/device/host_device.h"
#include "core/device/separate_device.h"

namespace ds {

std::unique_ptr<Device> make_device(std::string_view name) {
  if (name == "cpu") return std::make_unique<HostDevice>();
  if (name == "separate") return std::make_unique<SeparateDevice>();
  raise(DS_ERROR_UNSUPPORTED, "this build has no device '{}'", name);
}

}  // namespace ds
