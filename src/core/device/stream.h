#pragma once
#include <deque>
#include <memory>

#include "core/device/device.h"

namespace ds {

// A queue of a device for work that does not come from a compiled program: a caller's copies, and
// an engine's reads and writes of the caller's tensors. It keeps its device alive. Use it on one
// thread at a time.
class Stream {
 public:
  explicit Stream(std::shared_ptr<Device> device);

  const std::shared_ptr<Device>& device() const { return device_; }
  // Returns the queue. Throws DS_ERROR_POISONED if any queue of the device has failed, because then
  // no queue of the device works.
  DeviceQueue& queue();
  // Returns an event recorded after all work submitted to the stream so far.
  std::unique_ptr<Event> mark();
  // Waits until all work submitted to the stream so far has finished.
  void synchronize();
  // Keeps `memory`, which work submitted so far reads or writes, alive at least until that work has
  // finished. Also releases kept memory whose work has finished. `memory` may be null.
  void keep(std::shared_ptr<void> memory);

 private:
  struct Kept {
    std::shared_ptr<void> memory;
    std::unique_ptr<Event> until;
  };
  // Members are destroyed in reverse order: the queue first, the device last.
  std::shared_ptr<Device> device_;
  std::deque<Kept> kept_;
  std::unique_ptr<DeviceQueue> queue_;
};

// The stream that a caller has passed to a call. If null, the call reads and writes the caller's
// tensors before it returns.
using StreamRef = std::shared_ptr<Stream>;

}  // namespace ds
