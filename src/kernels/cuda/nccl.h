#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "ds_plugin.h"
#include "kernels/cuda/driver.h"

namespace ds::cuda {

// Opens NCCL at the first call: libnccl.so.2 or libnccl.so, or the library that DS_NCCL names.
// Throws a Failure with a one-line message if it is missing or too old. Returns its name and
// version, such as "NCCL 2.28.9".
std::string nccl_name();
using NcclId = std::array<uint8_t, 128>;
// Creates the identifier that all ranks of one communicator must pass to Link.
NcclId make_nccl_id(const Device& device);

// One rank's communicator. Use it on one thread at a time, except for abort(), which any thread may
// call.
class Link {
 public:
  Link(std::shared_ptr<Device> device, const NcclId& id, int rank, int size);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Returns whether all ranks have joined and the last transfer has been enqueued on its stream;
  // the caller must not enqueue another transfer before. Throws a Failure if the communicator has
  // failed, even if the failure is asynchronous.
  bool idle();
  // Enqueues an all-gather of `bytes` bytes of each rank.
  void gather(const DriverStream& stream, const void* in, void* out, int64_t bytes);
  // Enqueues a send to each other rank and a receive from it. Element r of each array describes the
  // part of rank r; a part of 0 bytes is not transferred.
  void swap(const DriverStream& stream, const ds_plugin_part* sends,
            const ds_plugin_part* receives);
  // Ends the communicator without waiting for its work, so that a stream that waits for a lost rank
  // continues.
  void abort();

 private:
  // Throws a Failure unless the call has succeeded or is in progress.
  void check(int result, const char* call) const;
  // Calls body() with the device's context current and mutex_ held. Throws a Failure if the
  // communicator has been ended.
  template <typename Body>
  void use(const Body& body);

  const std::shared_ptr<Device> device_;
  const int rank_, size_;
  // Protects communicator_, which another thread may end.
  std::mutex mutex_;
  // Null after the communicator has been ended.
  void* communicator_ = nullptr;
};

}  // namespace ds::cuda
