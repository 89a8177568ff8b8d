#include "core/device/plugin_base.h"

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/plugin.h"

namespace ds {

ds_status status_of_plugin(int32_t status) {
  if (status == DS_PLUGIN_REFUSED) return DS_ERROR_UNSUPPORTED;
  return status == DS_PLUGIN_OUT_OF_MEMORY ? DS_ERROR_OUT_OF_MEMORY : DS_ERROR_INTERNAL;
}

PluginBase::PluginBase(const ds_plugin_device_table& table, int32_t index, bool tf32)
    : table_(table), name_(fmt::format("{}:{}", table.name, index)) {
  int32_t status = table_.open(index, tf32 ? 1 : 0, &device_);
  if (status != DS_PLUGIN_OK)
    raise(status_of_plugin(status), "device '{}': {}", name_, table_.message());
}

// DS_PLUGIN_FAILED and DS_PLUGIN_LOST leave the device in an unknown state, so they become a
// DeviceFault, after which all queues of the device fail. Other errors concern only this call.
void PluginBase::check(int32_t status, std::string_view call) const {
  if (status == DS_PLUGIN_OK) return;
  const std::string text =
      one_line(fmt::format("device '{}', {}: {}", name_, call, table_.message()));
  if (status == DS_PLUGIN_FAILED || status == DS_PLUGIN_LOST)
    throw DeviceFault(DS_ERROR_INTERNAL, text);
  throw Error(status_of_plugin(status), text);
}

}  // namespace ds
