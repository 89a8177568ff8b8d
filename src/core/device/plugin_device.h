#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/device/device.h"
#include "core/device/device_link.h"
#include "core/device/plugin_base.h"
#include "ds_plugin.h"

namespace ds {

// A device of a plugin, which implements the interfaces of device.h by the functions of
// ds_plugin.h. Its queues are streams of the plugin or, for host code, threads of the host
// (make_host_queue()). Its host arenas are pinned.
class PluginDevice final : public PluginBase {
 public:
  // Throws an error with the plugin's reason if the plugin cannot open device `index`, usually
  // DS_ERROR_UNSUPPORTED.
  PluginDevice(const ds_plugin_device_table& table, int32_t index, bool tf32);
  ~PluginDevice() override;

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

 private:
  const bool ranges_;
  // Guards copies_.
  mutable std::mutex copying_;
  // The queue on which copy() and fill() submit their work, for which they wait.
  ds_plugin_queue* copies_ = nullptr;
};

// Opens device `index` of libds_NAME.so, where NAME is `name`. Throws DS_ERROR_UNSUPPORTED if there
// is no such plugin, and as the constructor of PluginDevice does.
std::unique_ptr<Device> make_plugin_device(const std::string& name, int32_t index, bool tf32);

// Returns the index of the device of libds_NAME.so that a local rank uses by default: the rank
// modulo the number of devices. If there is no device, returns the rank; make_plugin_device() then
// throws with the reason.
int32_t own_plugin_device(const std::string& name, int32_t local_rank);

// Returns a line about libds_NAME.so on this machine: its devices, or the reason why it has none.
std::string describe_plugin_devices(const std::string& name);

}  // namespace ds
