#pragma once
#include <deque>
#include <memory>

#include "core/device/device.h"

namespace ds {

// A queue of a device for work that does not come from a program: a caller's copies, and the order
// in which an engine reads and writes the caller's tensors. It keeps its device. One thread at a
// time.
class Stream {
 public:
  explicit Stream(std::shared_ptr<Device> device);

  const std::shared_ptr<Device>& device() const { return device_; }
  // Throws DS_ERROR_POISONED once a queue of the device has failed: then none of them does
  // anything.
  DeviceQueue& queue();
  // An event behind everything that the stream has been given so far.
  std::unique_ptr<Event> mark();
  // Waits until all of that has finished.
  void synchronize();
  // Keeps what the work so far reads or writes until that work has finished, or longer. Null:
  // nothing.
  void keep(std::shared_ptr<void> memory);

 private:
  struct Kept {
    std::shared_ptr<void> memory;
    std::unique_ptr<Event> until;
  };
  // They end in reverse order.
  std::shared_ptr<Device> device_;
  std::deque<Kept> kept_;
  std::unique_ptr<DeviceQueue> queue_;
};

// The stream of a call; null: the call does its part before it returns.
using StreamRef = std::shared_ptr<Stream>;

}  // namespace ds
