#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/device/device.h"
#include "ds.h"
#include "ds_plugin.h"

namespace ds {

// Returns the ds_status for the status of a failed plugin call, which must not be DS_PLUGIN_OK.
ds_status status_of_plugin(int32_t status);

// The part of a plugin's device that its memory, queues and links use: the plugin's table of
// functions, and the device's handle, which these functions expect.
class PluginBase : public Device {
 public:
  // Returns a name such as "cuda:0".
  const char* name() const override { return name_.c_str(); }
  const ds_plugin_device_table& table() const { return table_; }
  ds_plugin_device* handle() const { return device_; }
  const ds_plugin_device_info& info() const { return info_; }

  // Throws an error with the plugin's message unless `status` is DS_PLUGIN_OK. `call` names the
  // failed call in the message.
  void check(int32_t status, std::string_view call) const;
  // Calls a function of the plugin that creates an object and stores it through its last argument.
  // Returns the object; throws as check() does.
  template <typename Object, typename Call, typename... Args>
  Object* create(std::string_view name, Call call, Args... args) const {
    Object* made = nullptr;
    check(call(args..., &made), name);
    return made;
  }

 protected:
  // Opens device `index`. Throws an error with the plugin's reason if the plugin cannot open it,
  // usually DS_ERROR_UNSUPPORTED.
  PluginBase(const ds_plugin_device_table& table, int32_t index, bool tf32);

  const ds_plugin_device_table& table_;
  const std::string name_;
  ds_plugin_device* device_ = nullptr;
  ds_plugin_device_info info_{};
};

}  // namespace ds
