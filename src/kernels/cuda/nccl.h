#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "ds_plugin.h"
#include "kernels/cuda/driver.h"

namespace ds::cuda {

// NCCL: libnccl.so.2, or what DS_NCCL names, opened by the first call. Throws a Failure with one
// line where there is none, or where it is too old.
std::string nccl_name();  // "NCCL 2.28.9"
using NcclId = std::array<uint8_t, 128>;
NcclId make_nccl_id(const Device& device);

// One rank's communicator. Calls come from one thread at a time, but abort() from any.
class Link {
 public:
  Link(std::shared_ptr<Device> device, const NcclId& id, int rank, int size);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  bool idle();
  void gather(const DriverStream& stream, const void* in, void* out, int64_t bytes);
  void swap(const DriverStream& stream, const ds_plugin_part* sends,
            const ds_plugin_part* receives);
  void abort();

 private:
  // Throws unless the library goes on with the result, or has made it.
  void check(int result, const char* call) const;
  template <typename Body>
  void use(const Body& body);

  const std::shared_ptr<Device> device_;
  const int rank_, size_;
  std::mutex mutex_;              // of communicator_, whose end may come from another thread
  void* communicator_ = nullptr;  // null: it has been ended
};

}  // namespace ds::cuda
