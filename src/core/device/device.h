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

// A block of memory on a device, or on the host such that the device's queues can access it. The
// contents start as zeros. Pages that were never written use no memory if the device can avoid it.
// Not thread-safe.
class Arena {
 public:
  virtual ~Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns the address at which the device's queues access the first byte, or null if the arena
  // has no bytes. Host code may dereference the address of an arena on the host, and that of an
  // arena on the device only if Device::shared().
  std::byte* address() const { return address_; }
  int64_t bytes() const { return bytes_; }
  // Enlarges the arena to `wanted` bytes. Keeps the contents and appends zeros. The address may
  // change unless grows_in_place(wanted).
  virtual void grow(int64_t wanted) = 0;
  virtual bool grows_in_place(int64_t /*wanted*/) const { return false; }
  // Clears the whole pages within [begin, end), and returns them to the system if the device can.
  virtual void discard(int64_t begin, int64_t end) = 0;

 protected:
  Arena() = default;
  std::byte* address_ = nullptr;
  int64_t bytes_ = 0;
};

// A point in the work of a queue, like a CUDA event. An event may be recorded repeatedly.
class Event {
 public:
  virtual ~Event() = default;
  // Returns whether the work before the latest record has finished, or true if the event was never
  // recorded. May throw as synchronize() does.
  virtual bool done() const = 0;
  // Waits until the work before the latest record has finished, or throws the error that ended it.
  // May be called on any thread.
  virtual void synchronize() const = 0;
  // Returns a function that waits for the latest record at the time of this call, even if the event
  // is recorded again later. The function returns true once the work before that record has
  // finished, and false after about `ns` nanoseconds, which must be at most 50 ms.
  virtual std::function<bool(int64_t ns)> waiter() const = 0;
};

// The time at which a queue arrives at a point in its work.
class Instant {
 public:
  virtual ~Instant() = default;
  // Returns the nanoseconds from another instant, of any queue of the device, to this one. The
  // queues must have passed both instants.
  virtual int64_t ns_since(const Instant& other) const = 0;
};

// Captured work of a queue, with the arguments that it had at the capture. It must not be destroyed
// while a launch of it runs.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
};

// An error after which the contents of a device are unknown. Work that was submitted earlier may
// have caused it.
class DeviceFault : public Error {
 public:
  using Error::Error;
};

// The arguments of a launch.
struct LaunchArgs {
  std::span<const TensorView> in, out;
  // The scalars of the step, in device or host memory. The kernel reads them when it runs, not when
  // it is launched.
  const StepScalars* scalars = nullptr;
  // The index of the leaf: micro-step * data ranks + data coordinate. The micro-step is 0 outside
  // forward and backward.
  int64_t leaf = 0;
  // The scalars of the run of elements, for an update that is launched once for each run.
  RunScalars run = {};
};

// The description of a kernel to create. The views have the largest extents that launches may have;
// their data is not used.
struct KernelRequest {
  std::string_view op;
  std::span<const TensorView> in, out;
  const Attrs& attrs;
  // The runs of elements that one launch processes, in order. Empty if the launch processes all
  // elements.
  std::span<const ElementRun> runs;
};

// One operation, created once for its types and attributes and launched many times. A queue that
// runs host code calls run() on its thread, with addresses that host code can use. Other queues
// launch the kernels of their own device, whose form only this device knows.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const LaunchArgs& args) const = 0;
};

// The owner of work that is submitted to queues, to which the queues report. A queue with a host
// thread of its own calls worked() and failed() on that thread; idle() is called on the thread that
// waits.
class WorkOwner {
 public:
  // Reports that work `number` has been done between these times.
  virtual void worked(size_t number, int64_t begin_ns, int64_t end_ns) = 0;
  // Throws the error again, with the name of the work in its message.
  [[noreturn]] virtual void failed(size_t number, const std::exception& error) = 0;
  // Reports, from time to time, that the queue still waits for another queue before it begins work
  // `number`.
  virtual void idle(size_t number) = 0;

 protected:
  ~WorkOwner() = default;
};

// A queue that carries out work in the order of submission. Calls return as soon as the work is
// submitted, unless the queue is immediate(). Only the host thread that issues a program may call
// the functions, unless a function says otherwise. After the first error of any queue of a device,
// all queues of the device do no further work: later calls throw that error, and so do waits for
// work that has not finished. An immediate queue throws its own errors and is not affected.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // Returns whether calls return only after the work has been done, so that no wait for this queue
  // is needed.
  virtual bool immediate() const { return false; }

  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void fill(void* to, int byte, int64_t bytes) = 0;
  // Returns whether the queue runs host code on a thread of the host: kernels of Device::kernels()
  // and tasks of run().
  virtual bool runs_host_code() const { return true; }
  // Creates one of the device's own kernels, for launches on this queue. Only for queues that run
  // no host code. Throws DS_ERROR_UNSUPPORTED with the reason if the device has no such kernel.
  virtual std::unique_ptr<Kernel> make_kernel(const KernelRequest&) { return nullptr; }
  // Adds up `parts`, each of `count` elements of a floating type, into `out`, in f32 and in the
  // order of a reduction over ranks (docs/reference/ops.md). Only for queues that run no host code.
  // If the parts are f32, `out` may be one of them.
  virtual void sum(std::span<const void* const> parts, DType dtype, float* out, int64_t count);
  // Returns at least the requested number of bytes of the device's memory, as scratch memory that
  // the work of this queue uses while it runs. Only for queues that run no host code. All kernels
  // of the queue share the memory, which grows in place.
  virtual std::byte* scratch(int64_t) { return nullptr; }
  // Returns the current size of the scratch memory.
  virtual int64_t scratch_bytes() const { return 0; }
  // Launches a kernel. The views are copied.
  virtual void launch(const Kernel& kernel, const LaunchArgs& args) = 0;
  // Runs host code in the order of the queue. Only for queues that run host code.
  virtual void run(std::function<void()> task) = 0;

  // Creates an event for record() of this queue.
  virtual std::unique_ptr<Event> make_event() const = 0;
  // Records the event after the work submitted so far.
  virtual void record(Event& event) = 0;
  // Makes all later work of this queue wait until the work before the event's latest record, on any
  // queue, has finished. If the queue cannot wait for the event by itself, the calling thread
  // waits.
  virtual void wait(const Event& event) = 0;

  // Creates an instant for note(), or returns null if the queue does not measure times. note() sets
  // the instant to the time at which the work submitted so far has finished; it may be repeated.
  virtual std::unique_ptr<Instant> make_instant() const { return nullptr; }
  virtual void note(Instant&) {}

  // Waits until the work submitted so far has ended. Does not throw; later calls throw the errors.
  // May be called on any thread.
  virtual void finish() const noexcept = 0;

  // Returns whether copies, fills and launches can be captured: from begin_capture() on they are
  // recorded instead of carried out, and end_capture() returns the recorded work. If either fails,
  // nothing is recorded, and the queue works as before.
  virtual bool captures() const { return false; }
  virtual void begin_capture() {}
  virtual std::unique_ptr<CapturedWork> end_capture() { return nullptr; }
  virtual void launch(const CapturedWork&) {}

  // Returns whether the queue has marks, which show after a DeviceFault how much of its work has
  // finished. mark() submits a mark: marked() returns `number` once the work before the mark has
  // finished. unmark() resets marked() to 0; call it only while the queue has no work.
  virtual bool marks() const { return false; }
  virtual void mark(uint32_t) {}
  virtual uint32_t marked() const { return 0; }
  virtual void unmark() {}

  // Sets the owner and the number of all work submitted after this call. With a null owner, the
  // work has no owner.
  void attribute(WorkOwner* owner, size_t number) {
    owner_ = owner;
    number_ = number;
  }

 protected:
  WorkOwner* owner_ = nullptr;
  size_t number_ = 0;
};

// Memory, and queues that work on it. Each rank has its own Device object.
class Device {
 public:
  enum class Place : int8_t { device = 0, host };

  Device() = default;
  virtual ~Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Returns "host", "separate" or a name such as "cuda:0".
  virtual const char* name() const = 0;
  // Returns the name of the kernels that the device's host threads run, as in KernelImpl::device.
  virtual const char* kernels() const = 0;
  // Returns the device's part of the numerics key, which names everything on the device that the
  // bits of its kernels depend on, beginning with "cpu" or an architecture such as "sm_90".
  virtual std::string kind() const { return kernels(); }
  // Returns the domain, or "" if the device has none. Device objects of one process with the same
  // domain represent one device: their queues that run no host code may use each other's memory and
  // wait for each other's events.
  virtual std::string domain() const { return ""; }
  // Returns an identity of the hardware that is unique among all hosts, or "" if the device cannot
  // be linked.
  virtual std::string identity() const { return ""; }
  // Returns the name and version of the library that links devices of several ranks
  // (device_link.h). Both must be equal on all ranks. Throws DS_ERROR_UNSUPPORTED with the reason
  // if there is no such library.
  virtual std::string link_library() const;
  // Creates the id with which the ranks of a new group open their links. One rank of the group
  // calls this function and passes the id to the others.
  virtual LinkId make_link_id() const;
  // Begins to join a group of ranks. DeviceLink::settled() says when all ranks have joined. No two
  // ranks of a group may have devices of the same identity.
  virtual std::unique_ptr<DeviceLink> open_link(const LinkId& id, int rank, int size) const;
  // Returns whether host code may read and write the device's memory directly.
  virtual bool shared() const = 0;
  // Creates an arena of zeros. Throws DS_ERROR_OUT_OF_MEMORY if the system refuses. Arenas must be
  // destroyed before the device.
  virtual std::shared_ptr<Arena> make_arena(Place place, int64_t bytes) = 0;
  // Creates an arena of `bytes` bytes at the given place, with the contents of `arena` followed by
  // zeros. Pages of zeros take no memory if the device can avoid it.
  virtual std::shared_ptr<Arena> copy_arena(Place place, const Arena& arena, int64_t bytes) = 0;
  virtual std::unique_ptr<DeviceQueue> make_queue(const std::string& name) = 0;
  // Creates a queue that runs host code.
  virtual std::unique_ptr<DeviceQueue> make_host_queue(const std::string& name) {
    return make_queue(name);
  }
  // Returns the free bytes of the device's own memory, or nothing if the device uses host memory.
  virtual std::optional<int64_t> free_memory() const { return std::nullopt; }

  // These functions copy or fill bytes of the host or the device before they return. The caller
  // must have waited for all queues that use these bytes.
  virtual void copy(void* to, const void* from, int64_t bytes) const = 0;
  virtual void fill(void* to, int byte, int64_t bytes) const = 0;
  // Translates an address of the device into one that host code can use. Only host code in a task
  // of one of the device's queues may use the result.
  virtual void* reach(void* address) const { return address; }
  // Returns whether the address is in device memory, such as an arena or a caller's tensor on the
  // device.
  virtual bool owns(const void* address) const {
    return reach(const_cast<void*>(address)) != address;
  }

  // begin_range() and end_range() name the work that the calling thread submits between them, for a
  // profiler that watches this process. Ranges nest. has_ranges() returns whether such a profiler
  // is active.
  virtual bool has_ranges() const { return false; }
  virtual void begin_range(const char*) const {}
  virtual void end_range() const {}

  // Returns the shared error state of the device's queues, which fail together.
  Faults& faults() { return faults_; }

 private:
  Faults faults_;
};

// Copies into memory that contains only zeros, without writing pages that would stay zero.
void copy_sparse(std::byte* to, const std::byte* from, int64_t bytes);

}  // namespace ds
