#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/device/device.h"
#include "ds.h"
#include "ds_plugin.h"

namespace ds {

// Returns the ds_status for the status of a failed plugin call. The status must not be
// DS_PLUGIN_OK.
ds_status status_of_plugin(int32_t status);

// The part of a plugin's device that its memory, queues and links need: the plugin's table of
// functions, and the handle of the device to pass to them.
class PluginBase : public Device {
 public:
  const char* name() const override { return name_.c_str(); }  // "cuda:0"
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
  // Opens the device. Throws DS_ERROR_UNSUPPORTED with the plugin's reason if it cannot open device
  // `index`.
  PluginBase(const ds_plugin_device_table& table, int32_t index, bool tf32);

  const ds_plugin_device_table& table_;
  const std::string name_;
  ds_plugin_device* device_ = nullptr;
  ds_plugin_device_info info_{};
};

}  // namespace ds
