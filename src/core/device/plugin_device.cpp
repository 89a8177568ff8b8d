// Problem: a plugin has streams, events and memory in C; the executor has queues of which some are
// threads of the host, and an error of one must end all. Invariant: nothing of the host ever blocks
// a stream. A stream waits for a stream by itself. A thread waits for a stream by asking for the
// event again and again, so that it sees an error of another queue at once. For a thread's event
// the calling thread waits before it gives the stream anything more; what it waits for was given
// earlier, so that cannot be a circle. Cost: an event of the plugin for each record, used again
// when nobody waits for it any more.
#include "core/device/plugin_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/base/element_run.h"
#include "core/base/error.h"
#include "core/base/plugin.h"
#include "core/base/round.h"
#include "core/device/host_device.h"
#include "core/device/task_queue.h"
#include "core/device/thread_queue.h"
#include "core/device/view.h"

namespace ds {
namespace {

ds_status status_of(int32_t status) {
  if (status == DS_PLUGIN_REFUSED) return DS_ERROR_UNSUPPORTED;
  return status == DS_PLUGIN_OUT_OF_MEMORY ? DS_ERROR_OUT_OF_MEMORY : DS_ERROR_INTERNAL;
}

ds_plugin_view plain(const TensorView& view) {
  return {
      view.data, view.dtype, view.rank, {view.dims[0], view.dims[1], view.dims[2], view.dims[3]}};
}

std::vector<ds_plugin_view> plain(std::span<const TensorView> in, std::span<const TensorView> out) {
  std::vector<ds_plugin_view> views;
  views.reserve(in.size() + out.size());
  for (const TensorView& view : in) views.push_back(plain(view));
  for (const TensorView& view : out) views.push_back(plain(view));
  return views;
}

std::vector<ds_plugin_attr> plain(const Attrs& attrs) {
  std::vector<ds_plugin_attr> out;
  for (const auto& [key, value] : attrs.items()) {
    ds_plugin_attr attr{};
    attr.key = key.c_str();
    attr.kind = static_cast<int32_t>(value.index());
    if (const auto* integer = std::get_if<int64_t>(&value)) attr.integer = *integer;
    if (const auto* real = std::get_if<double>(&value)) attr.real = *real;
    if (const auto* text = std::get_if<std::string>(&value)) attr.text = text->c_str();
    if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
      attr.integers = integers->data();
      attr.integers_count = integers->size();
    }
    out.push_back(attr);
  }
  return out;
}

}  // namespace

void PluginDevice::check(int32_t status, std::string_view call) const {
  if (status == DS_PLUGIN_OK) return;
  const std::string text =
      one_line(fmt::format("device '{}', {}: {}", name_, call, table_.message()));
  if (status == DS_PLUGIN_FAILED || status == DS_PLUGIN_LOST)
    throw DeviceFault(DS_ERROR_INTERNAL, text);
  throw Error(status_of(status), text);
}

class PluginDevice::Memory final : public Arena {
 public:
  Memory(const PluginDevice& device, int64_t wanted) : device_(device) { grow(wanted); }
  ~Memory() override {
    if (arena_) device_.table_.arena_destroy(arena_);
  }
  void grow(int64_t wanted) override {
    if (wanted == bytes_) return;
    if (arena_) {
      device_.check(device_.table_.arena_grow(arena_, wanted), "an arena");
    } else {
      void* address = nullptr;
      device_.check(device_.table_.arena_create(device_.device_, wanted, &arena_, &address),
                    "an arena");
      address_ = static_cast<std::byte*>(address);
    }
    bytes_ = wanted;
  }
  // The memory stays the arena's.
  void discard(int64_t begin, int64_t end) override {
    constexpr int64_t kPage = 4096;
    int64_t low = round_up(begin, kPage), high = end / kPage * kPage;
    if (low < high) device_.fill(address_ + low, 0, high - low);
  }

 private:
  const PluginDevice& device_;
  ds_plugin_arena* arena_ = nullptr;
};

class PluginDevice::Pinned final : public Arena {
 public:
  Pinned(const PluginDevice& device, int64_t wanted) : device_(device), host_(wanted) { pin(); }
  ~Pinned() override { unpin(); }
  void grow(int64_t wanted) override {
    unpin();
    host_.grow(wanted);
    pin();
  }
  // Pinned pages stay.
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
      device_.check(device_.table_.pin(device_.device_, address_, bytes_), "a host arena");
    pinned_ = bytes_ > 0;
  }
  void unpin() {
    if (std::exchange(pinned_, false)) device_.table_.unpin(device_.device_, address_);
  }

  const PluginDevice& device_;
  HostArena host_;
  bool pinned_ = false;
};

// One record of an event.
class PluginDevice::Mark {
 public:
  explicit Mark(const PluginDevice& device, bool timed = false)
      : device_(device),
        event_(device.create<ds_plugin_event>("an event", device.table_.event_create,
                                              device.device_, timed ? 1 : 0)) {}
  ~Mark() { device_.table_.event_destroy(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  ds_plugin_event* event() const { return event_; }
  bool done() const {
    int32_t done = 0;
    device_.check(device_.table_.done(event_, &done), "work of a queue");
    return done != 0;
  }
  int64_t ns_since(const Mark& other) const {
    int64_t ns = 0;
    device_.check(device_.table_.elapsed(other.event_, event_, &ns), "the time of an event");
    return ns;
  }

 private:
  const PluginDevice& device_;
  ds_plugin_event* const event_;
};

struct PluginDevice::PluginInstant final : Instant {
  explicit PluginInstant(const PluginDevice& device) : mark(device, true) {}
  int64_t ns_since(const Instant& other) const override {
    return mark.ns_since(static_cast<const PluginInstant&>(other).mark);
  }
  const Mark mark;
};

class PluginDevice::Queue final : public DeviceQueue, public Faults::Member {
 public:
  Queue(PluginDevice& device, const std::string& name);
  ~Queue() override;

  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) give(table().copy(queue_, to, from, bytes), "a copy");
  }
  void fill(void* to, int byte, int64_t bytes) override {
    if (bytes > 0) give(table().fill(queue_, to, byte, bytes), "a fill");
  }
  void sum(std::span<const void* const> parts, DType dtype, float* out, int64_t count) override {
    const auto size = static_cast<int32_t>(parts.size());
    give(table().sum(queue_, parts.data(), size, dtype, out, count), "a sum over ranks");
  }
  bool runs_host_code() const override { return false; }
  std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) override;
  std::byte* scratch(int64_t bytes) override;
  int64_t scratch_bytes() const override { return scratch_ ? scratch_->bytes() : 0; }
  ds_plugin_queue* get() const { return queue_; }
  void give(int32_t status, std::string_view call);
  void launch(const Kernel& kernel, const LaunchArgs& args) override;
  void run(std::function<void()>) override {
    raise(DS_ERROR_INTERNAL, "a queue of device '{}' runs no host code", device_.name());
  }
  std::unique_ptr<Event> make_event() const override;
  void record(Event& event) override;
  void wait(const Event& event) override;
  std::unique_ptr<Instant> make_instant() const override {
    return std::make_unique<PluginInstant>(device_);
  }
  void note(Instant& instant) override;
  void finish() const noexcept override { table().finish(queue_); }
  bool captures() const override { return device_.info_.captures != 0; }
  void begin_capture() override { give(table().capture_begin(queue_), "a capture"); }
  std::unique_ptr<CapturedWork> end_capture() override;
  void launch(const CapturedWork& work) override;
  bool marks() const override { return true; }
  void mark(uint32_t number) override { give(table().mark(queue_, number), "a mark"); }
  uint32_t marked() const override {
    return std::atomic_ref<uint32_t>(*table().marked(queue_)).load(std::memory_order_acquire);
  }
  void unmark() override {
    std::atomic_ref<uint32_t>(*table().marked(queue_)).store(0, std::memory_order_release);
  }

  void fail(std::exception_ptr error) override {
    std::lock_guard lock(failing_);
    error_ = std::move(error);
    failed_.store(true, std::memory_order_release);
  }
  // Throws what ended the queues of the device.
  void check_faults() const {
    if (!failed_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(failing_);
    std::rethrow_exception(error_);
  }

 private:
  const ds_plugin_device_table& table() const { return device_.table_; }

  PluginDevice& device_;
  ds_plugin_queue* const queue_;
  std::unique_ptr<Memory> scratch_;
  mutable std::mutex failing_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
};

class PluginDevice::PluginEvent final : public Event {
 public:
  explicit PluginEvent(const PluginDevice& device) : device_(device) {}
  // For a record: one that nobody waits for.
  Mark& renew(const Queue& queue) {
    if (!mark_ || mark_.use_count() > 1) mark_ = std::make_shared<Mark>(device_);
    queue_ = &queue;
    return *mark_;
  }
  const Mark* mark() const { return mark_.get(); }

  bool done() const override {
    if (!mark_) return true;
    queue_->check_faults();
    return mark_->done();
  }
  void synchronize() const override {
    auto ended = waiter();
    while (!ended(50'000'000)) continue;
  }
  std::function<bool(int64_t)> waiter() const override {
    if (!mark_) return [](int64_t) { return true; };
    return [mark = mark_, queue = queue_](int64_t ns) {
      // A sleep lasts about 50 us longer than asked, so short waits spin.
      constexpr std::chrono::microseconds kAwake{100}, kMost{200};
      const auto begin = std::chrono::steady_clock::now(),
                 end = begin + std::chrono::nanoseconds(ns);
      std::chrono::microseconds pause{0};
      for (;;) {
        queue->check_faults();
        if (mark->done()) return true;
        const auto now = std::chrono::steady_clock::now();
        if (now >= end) return false;
        if (now - begin < kAwake) {
          std::this_thread::yield();
        } else {
          std::this_thread::sleep_for(pause =
                                          std::min(kMost, pause + std::chrono::microseconds(5)));
        }
      }
    };
  }

 private:
  const PluginDevice& device_;
  std::shared_ptr<Mark> mark_;
  const Queue* queue_ = nullptr;
};

class PluginDevice::PluginKernel final : public Kernel {
 public:
  PluginKernel(const PluginDevice& device, ds_plugin_kernel* kernel)
      : device_(device), kernel_(kernel) {}
  ~PluginKernel() override { device_.table_.kernel_destroy(kernel_); }
  void run(const LaunchArgs&) const override {
    raise(DS_ERROR_INTERNAL, "a kernel of device '{}' runs on its queues only", device_.name());
  }
  ds_plugin_kernel* get() const { return kernel_; }

 private:
  const PluginDevice& device_;
  ds_plugin_kernel* const kernel_;
};

class PluginDevice::PluginGraph final : public CapturedWork {
 public:
  PluginGraph(const PluginDevice& device, ds_plugin_graph* graph)
      : device_(device), graph_(graph) {}
  ~PluginGraph() override { device_.table_.graph_destroy(graph_); }
  ds_plugin_graph* get() const { return graph_; }

 private:
  const PluginDevice& device_;
  ds_plugin_graph* const graph_;
};

PluginDevice::Queue::Queue(PluginDevice& device, const std::string& name)
    : device_(device),
      queue_(device.create<ds_plugin_queue>("a queue", device.table_.queue_create, device.device_,
                                            name.c_str())) {
  device_.faults().add(this);
}

PluginDevice::Queue::~Queue() {
  device_.faults().remove(this);
  table().queue_destroy(queue_);
}

// The order of a queue is its own, so the status of a call is about its arguments or about work
// before it.
void PluginDevice::Queue::give(int32_t status, std::string_view call) {
  check_faults();
  device_.check(status, call);
}

// Scratch grows in place, and before anything of this queue uses the new kernel.
std::unique_ptr<Kernel> PluginDevice::Queue::make_kernel(const KernelRequest& request) {
  std::vector<ds_plugin_view> views = plain(request.in, request.out);
  for (ds_plugin_view& view : views) view.data = nullptr;
  std::vector<ds_plugin_attr> attrs = plain(request.attrs);
  std::vector<ds_plugin_run> runs;
  for (const ElementRun& run : request.runs)
    runs.push_back({run.begin, run.end, run.missed, run.group, run.param, run.element});
  const std::string op(request.op);
  const size_t in = request.in.size();
  const ds_plugin_query query{sizeof query, op.c_str(),         views.data(), views.data() + in,
                              in,           request.out.size(), attrs.data(), attrs.size(),
                              runs.data(),  runs.size()};
  int64_t scratch = 0;
  ds_plugin_kernel* made = nullptr;
  int32_t status = table().kernel_create(device_.device_, &query, &scratch, &made);
  if (status == DS_PLUGIN_REFUSED) {
    raise(DS_ERROR_UNSUPPORTED, "device '{}' has no kernel that runs '{}' ({})", device_.name(), op,
          table().message());
  }
  device_.check(status, "a kernel of '" + op + "'");
  auto kernel = std::make_unique<PluginKernel>(device_, made);
  this->scratch(scratch);
  return kernel;
}

std::byte* PluginDevice::Queue::scratch(int64_t bytes) {
  if (bytes > scratch_bytes()) {
    if (!scratch_) scratch_ = std::make_unique<Memory>(device_, 0);
    scratch_->grow(bytes);
  }
  return scratch_ ? scratch_->address() : nullptr;
}

void PluginDevice::Queue::launch(const Kernel& kernel, const LaunchArgs& args) {
  const auto* own = dynamic_cast<const PluginKernel*>(&kernel);
  ensure(own, "a kernel of the host was launched on a queue of device '{}'", device_.name());
  std::vector<ds_plugin_view> views = plain(args.in, args.out);
  ds_plugin_launch launch{};
  launch.struct_size = sizeof launch;
  launch.in = views.data();
  launch.out = views.data() + args.in.size();
  launch.in_count = args.in.size();
  launch.out_count = args.out.size();
  launch.scalars = args.scalars;
  launch.leaf = args.leaf;
  launch.missed = args.run.missed;
  launch.param = args.run.param;
  launch.element = args.run.element;
  launch.group = args.run.group;
  launch.scratch = scratch_ ? scratch_->address() : nullptr;
  give(table().kernel_launch(own->get(), queue_, &launch), "a launch");
}

// Ends the capture also where another queue has failed.
std::unique_ptr<CapturedWork> PluginDevice::Queue::end_capture() {
  ds_plugin_graph* made = nullptr;
  const int32_t status = table().capture_end(queue_, &made);
  auto work = std::make_unique<PluginGraph>(device_, made);
  give(status, "a capture");
  return work;
}

void PluginDevice::Queue::launch(const CapturedWork& work) {
  give(table().graph_launch(static_cast<const PluginGraph&>(work).get(), queue_),
       "a launch of a graph");
}

std::unique_ptr<Event> PluginDevice::Queue::make_event() const {
  return std::make_unique<PluginEvent>(device_);
}

void PluginDevice::Queue::record(Event& event) {
  auto& own = static_cast<PluginEvent&>(event);
  give(table().record(queue_, own.renew(*this).event()), "an event");
}

void PluginDevice::Queue::note(Instant& instant) {
  give(table().record(queue_, static_cast<PluginInstant&>(instant).mark.event()),
       "the time of an event");
}

void PluginDevice::Queue::wait(const Event& event) {
  if (const auto* own = dynamic_cast<const PluginEvent*>(&event)) {
    if (own->mark()) give(table().wait(queue_, own->mark()->event()), "a wait");
    return;
  }
  constexpr int64_t kLook = 50'000'000;
  for (auto ended = event.waiter(); !ended(kLook);) {
    check_faults();
    if (owner_) owner_->idle(number_);
  }
}

class PluginDevice::Link final : public DeviceLink {
 public:
  Link(const PluginDevice& device, ds_plugin_device_link* link) : device_(device), link_(link) {}
  ~Link() override { device_.table_.link_close(link_); }
  bool settled() override {
    int32_t idle = 0;
    done(device_.table_.link_poll(link_, &idle));
    return idle != 0;
  }
  void gather(DeviceQueue& queue, const void* in, void* out, int64_t bytes) override {
    auto& own = static_cast<Queue&>(queue);
    own.check_faults();
    done(device_.table_.link_gather(link_, own.get(), in, out, bytes));
  }
  void swap(DeviceQueue& queue, std::span<const ds_plugin_part> sends,
            std::span<const ds_plugin_part> receives) override {
    auto& own = static_cast<Queue&>(queue);
    own.check_faults();
    done(device_.table_.link_swap(link_, own.get(), sends.data(), receives.data()));
  }
  void abort() noexcept override { device_.table_.link_abort(link_); }

 private:
  // What a link refuses is an error of the collective that asks, not of what the device has yet to
  // do.
  void done(int32_t status) const {
    if (status == DS_PLUGIN_OK || status == DS_PLUGIN_LOST)
      return device_.check(status, "its link");
    throw Error(DS_ERROR_COMM, one_line(fmt::format("device '{}', its link: {}", device_.name_,
                                                    device_.table_.message())));
  }

  const PluginDevice& device_;
  ds_plugin_device_link* const link_;
};

std::string PluginDevice::kind() const {
  char out[128] = "";
  check(table_.numerics(device_, out), "what its bits depend on");
  return out;
}

std::string PluginDevice::link_library() const {
  char out[128] = "";
  const int32_t status = table_.link_library(device_, out);
  if (status != DS_PLUGIN_OK) raise(status_of(status), "{}", table_.message());
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

PluginDevice::PluginDevice(const ds_plugin_device_table& table, int32_t index, bool tf32)
    : table_(table), name_(fmt::format("{}:{}", table.name, index)), ranges_(table.ranges() != 0) {
  int32_t status = table_.open(index, tf32 ? 1 : 0, &device_);
  if (status != DS_PLUGIN_OK) raise(status_of(status), "device '{}': {}", name_, table_.message());
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
  return std::make_shared<Memory>(*this, bytes);
}

std::shared_ptr<Arena> PluginDevice::copy_arena(Place place, const Arena& arena, int64_t bytes) {
  std::shared_ptr<Arena> made = make_arena(place, bytes);
  copy(made->address(), arena.address(), arena.bytes());
  return made;
}

std::unique_ptr<DeviceQueue> PluginDevice::make_queue(const std::string& name) {
  return std::make_unique<Queue>(*this, name);
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

// A copy of a queue may end after its call, from memory that is not pinned, too. So this waits.
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
          "device '{0}:{1}' needs libds_{0}.so, beside libds or in a folder of DS_PLUGIN_PATH; "
          "there is none",
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

std::string described_links(const Device& device) {
  try {
    return "ranks on several are linked by " + device.link_library();
  } catch (const Error& error) {
    return fmt::format("ranks on several are not linked: {}", error.what());
  }
}

}  // namespace

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
