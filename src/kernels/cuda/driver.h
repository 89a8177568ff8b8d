#pragma once
#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "kernels/cuda/failure.h"
#include "kernels/cuda/kernel.h"

// Devices, memory, streams, events and graphs of the CUDA driver. The driver is not linked but
// opened at run time, so that this plugin can be loaded on a machine without one and report why
// there is no device.
namespace ds::cuda {

// Throws a Failure that names the call if `result` is an error.
void check(CUresult result, const char* call);

struct Driver;
// Returns the driver of this machine: libcuda.so.1, or the library that DS_CUDA_DRIVER names. The
// first call opens it. If it is missing or too old, every call throws a Failure with a one-line
// message.
const Driver& driver();
// Returns the file and the version of the driver, such as "libcuda.so.1 12.8".
std::string driver_name();
int device_count();

// A GPU, with its primary context and the modules of this plugin, which all users in the process
// share. Its functions may be called from any thread.
class Device {
 public:
  // Returns the device with this index; all callers get the same object while any of them holds it.
  // Throws a Failure if there is no such device or it is older than sm_80.
  static std::shared_ptr<Device> open(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // A Scope makes the context current on this thread until the end of the scope. With For::ending,
  // for destructors, it never throws: if the context cannot be made current, the calls inside the
  // scope fail, and their results are ignored.
  enum class For { use, ending };
  class Scope {
   public:
    explicit Scope(const Device& device, For purpose = For::use);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    bool entered_ = true;
  };

  const std::string& product() const { return product_; }
  // Returns the UUID of the device, or of the MIG slice, in hexadecimal.
  const std::string& identity() const { return identity_; }
  // Returns the architecture, such as "sm_90".
  std::string arch() const;
  int multiprocessors() const { return multiprocessors_; }
  // Returns the largest shared memory of a block, in bytes.
  int shared_bytes() const { return shared_bytes_; }
  // Returns the free and the total bytes of device memory.
  std::pair<int64_t, int64_t> memory() const;
  // Returns the granularity, in bytes, to which sizes of arenas are rounded up.
  int64_t granularity() const { return granularity_; }
  // Returns the function `entry` of the modules, configured for this much shared memory per block.
  // Throws a Failure if no module has this function or the device has less shared memory.
  CUfunction function(const std::string& entry, uint32_t shared_bytes);

  // Returns the state that a library (cuBLASLt) keeps for the device. It is created at the first
  // call and destroyed with the device. All calls must use the same Part.
  template <typename Part>
  Part& part() {
    std::lock_guard lock(finding_);
    if (!part_) part_ = std::make_shared<Part>();
    return *static_cast<Part*>(part_.get());
  }

  CUdevice number = 0;

 private:
  explicit Device(int index);
  void load_modules();
  void leave();

  CUcontext context_ = nullptr;
  std::string product_, identity_;
  int major_ = 0, minor_ = 0, multiprocessors_ = 0, shared_bytes_ = 0;
  int64_t granularity_ = 0;
  std::vector<CUmodule> modules_;
  std::mutex finding_;
  // A function that was looked up, and the shared memory per block for which it is configured.
  struct Found {
    CUfunction function = nullptr;
    uint32_t shared_bytes = 0;
  };
  std::map<std::string, Found> functions_;
  std::shared_ptr<void> part_;
};

// Device memory that keeps its address when it grows. An arena reserves a range of addresses as
// large as the device's memory, and maps physical memory from the beginning of the range on, piece
// by piece. New memory is zero.
class Arena {
 public:
  Arena(std::shared_ptr<Device> device, int64_t bytes);
  ~Arena();
  void grow(int64_t bytes);
  CUdeviceptr address() const { return address_; }

 private:
  void map(int64_t bytes);

  const std::shared_ptr<Device> device_;
  CUdeviceptr address_ = 0;
  int64_t reserved_ = 0, mapped_ = 0;
  struct Piece {
    CUmemGenericAllocationHandle handle = 0;
    int64_t begin = 0, bytes = 0;
  };
  std::vector<Piece> pieces_;
};

// A stream of the driver. It runs launches, copies and fills in the order of submission.
class DriverStream final : public Launcher {
 public:
  explicit DriverStream(std::shared_ptr<Device> device, bool tf32 = false);
  ~DriverStream();
  void launch(const Launch& launch) override;
  void copy(void* to, const void* from, int64_t bytes);
  void fill(void* to, int byte, int64_t bytes);
  void record(CUevent event);
  void wait(CUevent event);
  void finish();

  // Waits for the stream if DS_CUDA_BLOCKING is 1.
  void settle();
  // Begins a capture: launches, copies and fills on the stream are recorded for a Graph instead of
  // run.
  void begin_capture();
  // Enqueues a write of `number` to *marked(), so that the host can see the stream's progress
  // without a call of the driver.
  void mark(uint32_t number);
  uint32_t* marked() const { return marked_; }

  CUstream handle() const { return stream_; }
  // Returns whether matrix products of f32 may round their operands to TF32.
  bool tf32() const { return tf32_; }
  // kProductScratch bytes of scratch memory for the matrix products of the next launch; see blas.h.
  void* product_scratch = nullptr;
  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  const std::shared_ptr<Device> device_;
  const bool tf32_;
  CUstream stream_ = nullptr;
  // Whether DS_CUDA_BLOCKING is 1. Each call then waits for its work, so that it reports its own
  // errors.
  const bool blocking_;
  // A word of pinned host memory, which mark() writes.
  uint32_t* marked_ = nullptr;
};

// Returns whether streams can be captured. DS_CUDA_GRAPHS=0 turns captures off, and so does
// DS_CUDA_BLOCKING=1, because nothing can be awaited during a capture.
bool captures();

// Work that a stream has captured, as an executable graph. The constructor ends the capture, even
// if it throws.
class Graph {
 public:
  explicit Graph(DriverStream& stream);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch(DriverStream& stream);

 private:
  const std::shared_ptr<Device> device_;
  CUgraphExec graph_ = nullptr;
};

// A point in a stream's work that other streams and the host can wait for.
class Event {
 public:
  Event(std::shared_ptr<Device> device, bool timed);
  ~Event();
  bool done() const;
  // Returns the nanoseconds from `other` to this event. Both must be timed and done.
  int64_t ns_since(const Event& other) const;
  CUevent handle() const { return event_; }

 private:
  const std::shared_ptr<Device> device_;
  CUevent event_ = nullptr;
};

// pin() page-locks host memory, so that copies run asynchronously, until unpin(). owns() returns
// whether an address is in this device's memory.
void pin(const Device& device, void* host, int64_t bytes);
void unpin(const Device& device, void* host);
bool owns(const Device& device, const void* address);

}  // namespace ds::cuda
