#pragma once
#include <cstdint>
#include <string_view>

#include "core/base/dtype.h"
#include "core/device/device.h"

namespace ds {

// The collectives of a program, on memory of one device and in the order of a queue: the data
// plane. The control plane, by which ranks agree, compare and abort, is the communicator, which is
// the same for every kind of device.
class Group {
 public:
  enum class Op : int8_t { all_gather, reduce_scatter, all_reduce, all_to_all };

  virtual ~Group() = default;
  // Returns the bytes of device memory that a call of run() needs in addition to its operands.
  virtual int64_t room(Op op, int64_t count, DType dtype) const = 0;
  // Submits a collective to the queue. `count` is the number of elements that this rank sends to
  // each rank: all elements of `in` or, in a reduce_scatter or an all_to_all, the block of one
  // rank. `room` has at least room(op, count, dtype) bytes. 16-bit types are added up in f32, other
  // types in themselves. `label` must live until the work has ended.
  virtual void run(DeviceQueue& queue, Op op, const void* in, void* out, int64_t count, DType dtype,
                   void* room, std::string_view label) = 0;
  // Throws if the work submitted to the queue can no longer end. The thread that calls run() must
  // call this from time to time while it waits for the queue.
  virtual void watch() {}
  // Makes the current and all later collectives fail on every rank. May be called on any thread.
  virtual void abort(std::string_view reason) = 0;
};

}  // namespace ds
