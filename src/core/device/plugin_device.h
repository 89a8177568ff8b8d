#pragma once
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "core/device/device.h"
#include "core/device/device_link.h"
#include "ds_plugin.h"

namespace ds {

// A device of a plugin: what ds_plugin.h has, as the interfaces of device.h. Its queues are streams
// of the plugin, or threads of the host for host code (make_host_queue). Memory of the host is
// pinned.
class PluginDevice final : public Device {
 public:
  // Throws DS_ERROR_UNSUPPORTED with the plugin's reason where it has no device `index`.
  PluginDevice(const ds_plugin_device_table& table, int32_t index, bool tf32);
  ~PluginDevice() override;

  const char* name() const override { return name_.c_str(); }  // "cuda:0"
  const char* kernels() const override { return "cpu"; }
  std::string kind() const override;
  std::string domain() const override { return name_; }
  std::string identity() const override { return info_.identity; }
  std::string link_library() const override;
  LinkId make_link_id() const override;
  std::unique_ptr<DeviceLink> open_link(const LinkId& id, int rank, int size) const override;
  bool shared() const override { return false; }
  std::shared_ptr<Arena> make_arena(Place place, int64_t bytes) override;
  std::shared_ptr<Arena> copy_arena(Place place, const Arena& arena, int64_t bytes) override;
  std::unique_ptr<DeviceQueue> make_queue(const std::string& name) override;
  std::unique_ptr<DeviceQueue> make_host_queue(const std::string& name) override;
  std::optional<int64_t> free_memory() const override;
  void copy(void* to, const void* from, int64_t bytes) const override;
  void fill(void* to, int byte, int64_t bytes) const override;
  bool owns(const void* address) const override;
  bool has_ranges() const override { return ranges_; }
  void begin_range(const char* name) const override { table_.range_push(name); }
  void end_range() const override { table_.range_pop(); }

  const ds_plugin_device_info& info() const { return info_; }

 private:
  class Memory;
  class Pinned;
  class Queue;
  class Mark;
  class PluginEvent;
  struct PluginInstant;
  class PluginKernel;
  class Link;
  class PluginGraph;

  // Throws the plugin's message, unless status is 0.
  void check(int32_t status, std::string_view call) const;
  // Makes an object by a call that has it as its last argument.
  template <typename Object, typename Call, typename... Args>
  Object* create(std::string_view name, Call call, Args... args) const {
    Object* made = nullptr;
    check(call(args..., &made), name);
    return made;
  }

  const ds_plugin_device_table& table_;
  std::string name_;
  ds_plugin_device* device_ = nullptr;
  ds_plugin_device_info info_{};
  const bool ranges_;
  mutable std::mutex copying_;         // of copies here and now
  ds_plugin_queue* copies_ = nullptr;  // theirs
};

// Opens device `index` of libds_NAME.so.
std::unique_ptr<Device> make_plugin_device(const std::string& name, int32_t index, bool tf32);

// The number of the device of libds_NAME.so that is the local rank's own: the rank modulo the
// devices there are. Where there is none, the rank, for which make_plugin_device() says why.
int32_t own_plugin_device(const std::string& name, int32_t local_rank);

// What there is of libds_NAME.so on this machine, in a line: the devices, or why there is none.
std::string describe_plugin_devices(const std::string& name);

}  // namespace ds
