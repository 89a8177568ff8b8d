#include "core/device/stream.h"

#include <utility>

#include "core/base/error.h"

namespace ds {

Stream::Stream(std::shared_ptr<Device> device)
    : device_(std::move(device)), queue_(device_->make_queue("stream")) {}

DeviceQueue& Stream::queue() {
  if (device_->faults().failed())
    raise(DS_ERROR_POISONED, "the stream is unusable: its engine on device '{}' has failed",
          device_->name());
  return *queue_;
}

std::unique_ptr<Event> Stream::mark() {
  std::unique_ptr<Event> event = queue().make_event();
  queue_->record(*event);
  return event;
}

// All work has finished, so all kept memory can be released.
void Stream::synchronize() {
  mark()->synchronize();
  kept_.clear();
}

// Work ends in the order of the stream, so memory is released from the front.
void Stream::keep(std::shared_ptr<void> memory) {
  while (!kept_.empty() && kept_.front().until->done()) kept_.pop_front();
  if (memory) kept_.push_back({std::move(memory), mark()});
}

}  // namespace ds
