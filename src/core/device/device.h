#pragma once
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/base/element_run.h"
#include "core/base/error.h"
#include "core/base/group_scalars.h"
#include "core/device/device_link.h"
#include "core/device/scalars.h"
#include "core/device/task_queue.h"
#include "core/device/view.h"

namespace ds {

// Bytes of a device, or of the host where the device's queues reach them. Contents start as zero
// bytes, and pages that nobody has written take no memory. Not threadsafe.
class Arena {
 public:
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Of the first byte, as the device's queues know it. Host code touches it only where
  // Device::shared() says so. Null when there are no bytes.
  std::byte* address() const { return address_; }
  int64_t bytes() const { return bytes_; }
  // Keeps the contents and has zero bytes behind them. The address may change.
  virtual void grow(int64_t wanted) = 0;
  // Whole pages in [begin, end) go back to the system and read as zero again.
  virtual void discard(int64_t begin, int64_t end) = 0;

 protected:
  Arena() = default;
  std::byte* address_ = nullptr;
  int64_t bytes_ = 0;
};

// A place in the order of a queue. It is recorded again and again.
class Event {
 public:
  virtual ~Event() = default;
  // Whether the work before the latest record has finished; true before any.
  virtual bool done() const = 0;
  // Returns when it has; throws what ended that work. Any thread.
  virtual void synchronize() const = 0;
  // Waits for the record that is the latest now, also when the event has been recorded again
  // meanwhile: a function that returns true once that work has finished, and false when that takes
  // longer than about so many nanoseconds, up to 50 ms.
  virtual std::function<bool(int64_t ns)> waiter() const = 0;
};

// A point in the order of a queue: the queue notes the time when it comes to it.
class Instant {
 public:
  virtual ~Instant() = default;
  // Nanoseconds from another one, of any queue of the device, to this one. Both queues have come to
  // them.
  virtual int64_t ns_since(const Instant& other) const = 0;
};

// Work of a queue that was captured, with every argument as it was given. It ends when no launch of
// it runs.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
};

// The contents of a device are unknown from here on: work that it was given earlier may be to
// blame.
class DeviceFault : public Error {
 public:
  using Error::Error;
};

// What a launch gives to a kernel.
struct LaunchArgs {
  std::span<const TensorView> in, out;
  const StepScalars* scalars =
      nullptr;       // in memory of the device or the host, as they are when it runs
  int64_t leaf = 0;  // micro_step * world + rank of the running micro-step; 0 in update
  RunScalars run = {};
};

// What a kernel is asked to run, before it runs. Views are at the bound, and have no data.
struct KernelRequest {
  std::string_view op;
  std::span<const TensorView> in, out;
  const Attrs& attrs;
  std::span<const ElementRun> runs;  // of an operation that takes elements in an order of its own
};

// One operation, made once for its types and attributes, launched again and again. What it is made
// of is the device's own: a device whose queues are host threads calls run() there, with addresses
// that it can use.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const LaunchArgs& args) const = 0;
};

// Whose work a queue has been given. All are called on the thread that did the work, where there is
// one.
class WorkOwner {
 public:
  virtual void worked(size_t number, int64_t begin_ns, int64_t end_ns) = 0;
  // Throws the error with the name of the work.
  [[noreturn]] virtual void failed(size_t number, const std::exception& error) = 0;
  // Every now and then while the queue waits for another one before that work.
  virtual void idle(size_t number) = 0;

 protected:
  ~WorkOwner() = default;
};

// Carries work out in the order in which it is given. Calls return when the work is submitted; the
// host thread that issues a program makes them all. After the first error of any queue of a device
// its queues do nothing more, and every call and every wait throws that error.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Whether work has been done when the call returns. Then nobody needs to wait for this queue.
  virtual bool immediate() const { return false; }

  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void fill(void* to, int byte, int64_t bytes) = 0;
  // Whether it is a thread of the host. It runs host code then: kernels of Device::kernels(), and
  // run().
  virtual bool runs_host_code() const { return true; }
  // Of a queue that runs no host code: one of the device's own kernels, for launches on this queue.
  // Throws DS_ERROR_UNSUPPORTED with the reason where it has none.
  virtual std::unique_ptr<Kernel> make_kernel(const KernelRequest&) { return nullptr; }
  // Likewise: out = the sum over parts of `count` elements of a floating type each, in f32 and in
  // the order of a reduction over ranks (docs/reference/ops.md). out may be one of the parts where
  // they are f32.
  virtual void sum(std::span<const void* const> parts, DType dtype, float* out, int64_t count);
  // Likewise: memory of the device of so many bytes or more, for what work of this queue needs
  // while it runs. It grows in place. Kernels that were made have theirs there, too.
  virtual std::byte* scratch(int64_t) { return nullptr; }
  // How much that is.
  virtual int64_t scratch_bytes() const { return 0; }
  // Takes copies of the views.
  virtual void launch(const Kernel& kernel, const LaunchArgs& args) = 0;
  // Host code at its place in the order; of queues that are host threads.
  virtual void run(std::function<void()> task) = 0;

  virtual std::unique_ptr<Event> make_event() const = 0;  // for record() of this queue
  virtual void record(Event& event) = 0;
  // What is given from here on starts when the work before the latest record of the event, of any
  // queue, has finished. Where a queue cannot wait for such an event by itself, the calling thread
  // does.
  virtual void wait(const Event& event) = 0;

  // One that note() puts behind what was given so far, again and again. Null: the queue tells no
  // times.
  virtual std::unique_ptr<Instant> make_instant() const { return nullptr; }
  virtual void note(Instant&) {}

  // Waits until nothing is queued or running. Errors stay. Any thread.
  virtual void finish() const noexcept = 0;

  // Whether copies, fills and launches can be captured. From begin_capture() on they are kept and
  // not done; end_capture() takes what was kept. After an error of either nothing is, and the queue
  // works as before.
  virtual bool captures() const { return false; }
  virtual void begin_capture() {}
  virtual std::unique_ptr<CapturedWork> end_capture() { return nullptr; }
  virtual void launch(const CapturedWork&) {}

  // Marks tell after a DeviceFault how far a queue has come. The queue sets marked() to `number`
  // when the work before has finished; the host may set it to 0 while there is none.
  virtual bool marks() const { return false; }
  virtual void mark(uint32_t) {}
  virtual uint32_t marked() const { return 0; }
  virtual void unmark() {}

  // Whose work is given from here on; null: nobody's.
  void attribute(WorkOwner* owner, size_t number) {
    owner_ = owner;
    number_ = number;
  }

 protected:
  WorkOwner* owner_ = nullptr;
  size_t number_ = 0;
};

// Memory, and queues that work on it. One object for each rank.
class Device {
 public:
  enum class Place : int8_t { device = 0, host };

  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  virtual const char* name() const = 0;  // "host", "separate", "cuda:0"
  virtual const char* kernels()
      const = 0;  // which kernels its threads of the host run: KernelImpl::device
  // What the bits of its kernels depend on, in the numerics key: "cpu", or an architecture such as
  // "sm_90".
  virtual std::string kind() const { return kernels(); }
  // Devices of one process that have the same one, but "", are one: their queues that run no host
  // code may use memory and wait for events of each other.
  virtual std::string domain() const { return ""; }
  // Of the hardware: no other device of any host has it. "": its ranks cannot be linked.
  virtual std::string identity() const { return ""; }
  // The library that links devices of several ranks (device_link.h): its name and version, the same
  // on all ranks. Throws DS_ERROR_UNSUPPORTED with the reason where there is none.
  virtual std::string link_library() const;
  // What the ranks of a new group open their links with: one of them makes it.
  virtual LinkId make_link_id() const;
  // Begins to join; no two ranks of a group have devices of one identity.
  virtual std::unique_ptr<DeviceLink> open_link(const LinkId& id, int rank, int size) const;
  virtual bool shared() const = 0;  // host code may read and write its memory like any other
  // Throws DS_ERROR_OUT_OF_MEMORY where the system refuses. Arenas end before the device.
  virtual std::shared_ptr<Arena> make_arena(Place place, int64_t bytes) = 0;
  // Another arena of the same place with the same contents and zero bytes behind them. It takes
  // pages only for what is not zero.
  virtual std::shared_ptr<Arena> copy_arena(Place place, const Arena& arena, int64_t bytes) = 0;
  virtual std::unique_ptr<DeviceQueue> make_queue(const std::string& name) = 0;
  // One that runs host code.
  virtual std::unique_ptr<DeviceQueue> make_host_queue(const std::string& name) {
    return make_queue(name);
  }
  // Bytes of memory of its own that nobody has taken; none: its memory is that of the host.
  virtual std::optional<int64_t> free_memory() const { return std::nullopt; }

  // Here and now, between memory of the host or the device and memory of either. Whoever calls has
  // waited for what writes these bytes.
  virtual void copy(void* to, const void* from, int64_t bytes) const = 0;
  virtual void fill(void* to, int byte, int64_t bytes) const = 0;
  // Where host code in a task of one of its queues finds these bytes: only that may use the result.
  virtual void* reach(void* address) const { return address; }
  // Whether these are bytes of its memory; those of a caller may lie there, too.
  virtual bool owns(const void* address) const {
    return reach(const_cast<void*>(address)) != address;
  }

  // For a tool that watches this process, if there is one: what the calling thread gives to queues
  // from begin_range() to end_range() has this name. Ranges nest.
  virtual bool has_ranges() const { return false; }
  virtual void begin_range(const char*) const {}
  virtual void end_range() const {}

  // Its queues fail together.
  Faults& faults() { return faults_; }

 private:
  Faults faults_;
};

// Copies into memory that is zero, and does not touch pages that would stay so.
void copy_sparse(std::byte* to, const std::byte* from, int64_t bytes);

}  // namespace ds
