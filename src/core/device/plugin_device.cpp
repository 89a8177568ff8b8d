#include "core/device/plugin_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/plugin.h"
#include "core/base/round.h"
#include "core/device/host_device.h"
#include "core/device/plugin_queue.h"
#include "core/device/thread_queue.h"

namespace ds {
namespace {

// An arena of host memory that is pinned for the device, so that copies of a queue run
// asynchronously.
class Pinned final : public Arena {
 public:
  Pinned(const PluginBase& device, int64_t wanted) : device_(device), host_(wanted) { pin(); }
  ~Pinned() override { unpin(); }
  void grow(int64_t wanted) override {
    unpin();
    host_.grow(wanted);
    pin();
  }
  // Pinned pages cannot be returned to the system, so they are only cleared.
  void discard(int64_t begin, int64_t end) override {
    constexpr int64_t kPage = 4096;
    int64_t low = round_up(begin, kPage), high = end / kPage * kPage;
    if (low < high) std::fill(address_ + low, address_ + high, std::byte{0});
  }

 private:
  void pin() {
    address_ = host_.address();
    bytes_ = host_.bytes();
    if (bytes_ > 0)
      device_.check(device_.table().pin(device_.handle(), address_, bytes_), "a host arena");
    pinned_ = bytes_ > 0;
  }
  void unpin() {
    if (std::exchange(pinned_, false)) device_.table().unpin(device_.handle(), address_);
  }

  const PluginBase& device_;
  HostArena host_;
  bool pinned_ = false;
};

// A DeviceLink that calls the plugin's library. If the device's queues have failed, gather() and
// swap() throw their error and do not call the library.
class Link final : public DeviceLink {
 public:
  Link(const PluginBase& device, ds_plugin_device_link* link) : device_(device), link_(link) {}
  ~Link() override { device_.table().link_close(link_); }
  bool settled() override {
    int32_t idle = 0;
    done(device_.table().link_poll(link_, &idle));
    return idle != 0;
  }
  void gather(DeviceQueue& queue, const void* in, void* out, int64_t bytes) override {
    auto& own = static_cast<PluginQueue&>(queue);
    own.check_faults();
    done(device_.table().link_gather(link_, own.get(), in, out, bytes));
  }
  void swap(DeviceQueue& queue, std::span<const ds_plugin_part> sends,
            std::span<const ds_plugin_part> receives) override {
    auto& own = static_cast<PluginQueue&>(queue);
    own.check_faults();
    done(device_.table().link_swap(link_, own.get(), sends.data(), receives.data()));
  }
  void abort() noexcept override { device_.table().link_abort(link_); }

 private:
  // An error of the link is an error of the collective (DS_ERROR_COMM) and does not affect the
  // device's other work. Only a lost device is an error of the device.
  void done(int32_t status) const {
    if (status == DS_PLUGIN_OK || status == DS_PLUGIN_LOST)
      return device_.check(status, "its link");
    throw Error(DS_ERROR_COMM, one_line(fmt::format("device '{}', its link: {}", device_.name(),
                                                    device_.table().message())));
  }

  const PluginBase& device_;
  ds_plugin_device_link* const link_;
};

}  // namespace

std::string PluginDevice::kind() const {
  char out[128] = "";
  check(table_.numerics(device_, out), "its numerics");
  return out;
}

std::string PluginDevice::link_library() const {
  char out[128] = "";
  const int32_t status = table_.link_library(device_, out);
  if (status != DS_PLUGIN_OK) raise(status_of_plugin(status), "{}", table_.message());
  return out;
}

LinkId PluginDevice::make_link_id() const {
  LinkId out{};
  check(table_.link_id(device_, out.data()), "links of ranks");
  return out;
}

std::unique_ptr<DeviceLink> PluginDevice::open_link(const LinkId& id, int rank, int size) const {
  return std::make_unique<Link>(
      *this,
      create<ds_plugin_device_link>("a link", table_.link_open, device_, id.data(), rank, size));
}

// If the constructor throws, the destructor does not run, so the device is closed here.
PluginDevice::PluginDevice(const ds_plugin_device_table& table, int32_t index, bool tf32)
    : PluginBase(table, index, tf32), ranges_(table.ranges() != 0) {
  try {
    info_.struct_size = sizeof info_;
    check(table_.info(device_, &info_), "its description");
    copies_ = create<ds_plugin_queue>("a queue", table_.queue_create, device_, "copies");
  } catch (...) {
    table_.close(device_);
    throw;
  }
}

PluginDevice::~PluginDevice() {
  table_.queue_destroy(copies_);
  table_.close(device_);
}

std::shared_ptr<Arena> PluginDevice::make_arena(Place place, int64_t bytes) {
  if (place == Place::host) return std::make_shared<Pinned>(*this, bytes);
  return std::make_shared<PluginMemory>(*this, bytes);
}

std::shared_ptr<Arena> PluginDevice::copy_arena(Place place, const Arena& arena, int64_t bytes) {
  std::shared_ptr<Arena> made = make_arena(place, bytes);
  copy(made->address(), arena.address(), arena.bytes());
  return made;
}

std::unique_ptr<DeviceQueue> PluginDevice::make_queue(const std::string& name) {
  return std::make_unique<PluginQueue>(*this, name);
}

std::unique_ptr<DeviceQueue> PluginDevice::make_host_queue(const std::string& name) {
  return std::make_unique<ThreadQueue>(*this, name);
}

std::optional<int64_t> PluginDevice::free_memory() const {
  ds_plugin_device_info now{};
  now.struct_size = sizeof now;
  check(table_.info(device_, &now), "its description");
  return now.free;
}

// The plugin's copy may end after its call returns, even if the memory is not pinned, so this
// function waits for it.
void PluginDevice::copy(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  std::lock_guard lock(copying_);
  check(table_.copy(copies_, to, from, bytes), "a copy");
  check(table_.finish(copies_), "a copy");
}

bool PluginDevice::owns(const void* address) const {
  int32_t out = 0;
  check(table_.owns(device_, address, &out), "owns");
  return out != 0;
}

void PluginDevice::fill(void* to, int byte, int64_t bytes) const {
  if (bytes == 0) return;
  std::lock_guard lock(copying_);
  check(table_.fill(copies_, to, byte, bytes), "a fill");
  check(table_.finish(copies_), "a fill");
}

std::unique_ptr<Device> make_plugin_device(const std::string& name, int32_t index, bool tf32) {
  const ds_plugin_device_table* table = load_device(name);
  if (!table) {
    raise(DS_ERROR_UNSUPPORTED,
          "device '{0}:{1}' needs libds_{0}.so beside libds or in a folder of DS_PLUGIN_PATH, but "
          "no such file was found",
          name, index);
  }
  return std::make_unique<PluginDevice>(*table, index, tf32);
}

int32_t own_plugin_device(const std::string& name, int32_t local_rank) {
  const ds_plugin_device_table* table = load_device(name);
  int32_t count = 0;
  if (!table || table->count(&count) != DS_PLUGIN_OK || count == 0) return local_rank;
  return local_rank % count;
}

namespace {

// Returns a clause that names the library by which ranks on several devices are linked, or the
// reason why they are not.
std::string described_links(const Device& device) {
  try {
    return "ranks on several are linked by " + device.link_library();
  } catch (const Error& error) {
    return fmt::format("ranks on several are not linked: {}", error.what());
  }
}

}  // namespace

// The function describes the machine, so an error is returned as the line instead of being thrown.
std::string describe_plugin_devices(const std::string& name) {
  try {
    const ds_plugin_device_table* table = load_device(name);
    if (!table) return "no plugin";
    int32_t count = 0;
    if (table->count(&count) != DS_PLUGIN_OK) return table->message();
    std::string out;
    for (int32_t index = 0; index < count; ++index) {
      const PluginDevice device(*table, index, false);
      const ds_plugin_device_info& info = device.info();
      if (index == 0) out = info.driver;
      out += fmt::format(", {} {} ({}), {} MiB, {} MiB free", device.name(), info.name, info.arch,
                         info.total >> 20, info.free >> 20);
      if (index + 1 == count) out += "; " + described_links(device);
    }
    return count == 0 ? "the driver has no device" : out;
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace ds
