#pragma once
#include <cstdint>
#include <string_view>

#include "core/base/dtype.h"
#include "core/device/device.h"

namespace ds {

// The collectives of a program: on memory of one device, in the order of a queue. This is the data
// plane; agreeing, comparing and giving up stay with the communicator, which the ranks of every
// device have.
class Group {
 public:
  enum class Op : int8_t { all_gather, reduce_scatter, all_reduce, all_to_all };

  virtual ~Group() = default;
  // Bytes beside the operands that a call needs, in memory of the device.
  virtual int64_t room(Op op, int64_t count, DType dtype) const = 0;
  // count: the elements of `in` that are this rank's to give to each other one: all of them, or a
  // block of them for each rank in a reduce_scatter and an all_to_all. Sums are made in f32 of
  // 16-bit types, in their own of others. The label lives until the work has ended.
  virtual void run(DeviceQueue& queue, Op op, const void* in, void* out, int64_t count, DType dtype,
                   void* room, std::string_view label) = 0;
  // The thread that calls run() calls this every now and then while it waits for the queue. Throws
  // where the work that the queue was given cannot end any more.
  virtual void watch() {}
  // Ends this and all later calls of every rank. Any thread.
  virtual void abort(std::string_view reason) = 0;
};

}  // namespace ds
