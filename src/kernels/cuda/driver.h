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

// The CUDA driver: memory, streams and events of a device, and its functions. Nothing is linked:
// the driver is opened at run time, so that a machine without one loads this plugin and hears why
// it has no device.
namespace ds::cuda {

// Throws a Failure that names the call, unless it succeeded.
void check(CUresult result, const char* call);

// The driver of this machine: libcuda.so.1, or what DS_CUDA_DRIVER names. The first call opens it.
// Throws a Failure with one line where there is none or it is too old, again at each call.
struct Driver;
const Driver& driver();
std::string driver_name();  // with its version
int device_count();

// What opens of one device share: its primary context, and the modules of this plugin.
class Device {
 public:
  static std::shared_ptr<Device> open(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // The context is the current one of the thread, until the end of a scope. To end things with, it
  // throws nothing: where it cannot be made current, what is called fails by itself, and nobody is
  // told.
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
  const std::string& identity() const { return identity_; }  // its UUID, or that of a part of it
  std::string arch() const;                                  // "sm_90"
  int multiprocessors() const { return multiprocessors_; }
  int shared_bytes() const { return shared_bytes_; }  // of a block, at most
  std::pair<int64_t, int64_t> memory() const;         // free and total bytes
  int64_t granularity() const { return granularity_; }
  // A function of one of the modules that may use so much memory of a block.
  CUfunction function(const std::string& entry, uint32_t shared_bytes);

  // The object of a library that works in the device's context: made at the first call, ended with
  // the device.
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
  struct Found {
    CUfunction function = nullptr;
    uint32_t shared_bytes = 0;
  };
  std::map<std::string, Found> functions_;
  std::shared_ptr<void> part_;  // cuBLASLt's
};

// Memory at an address that it keeps when it grows: a range of addresses as large as the device's
// memory, of which the beginning is mapped.
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

// A stream takes launches.
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

  void settle();  // with DS_CUDA_BLOCKING: finish
  // What this thread launches, copies and fills from here on is kept for a Graph.
  void begin_capture();
  void mark(uint32_t number);
  uint32_t* marked() const { return marked_; }

  CUstream handle() const { return stream_; }
  bool tf32() const { return tf32_; }  // what products of f32 may round their operands to
  void* product_scratch =
      nullptr;  // kProductScratch bytes for products of the launch that comes, see blas.h
  const std::shared_ptr<Device>& device() const { return device_; }

 private:
  const std::shared_ptr<Device> device_;
  const bool tf32_;
  CUstream stream_ = nullptr;
  const bool blocking_;  // DS_CUDA_BLOCKING: each launch ends before its call, so that its error is
                         // its own
  uint32_t* marked_ = nullptr;  // a word of pinned memory that the stream writes
};

// Whether streams are captured: not with DS_CUDA_GRAPHS=0, nor where each launch ends before its
// call.
bool captures();

// What a stream has captured: ends the capture, also where that is an error.
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

class Event {
 public:
  Event(std::shared_ptr<Device> device, bool timed);
  ~Event();
  bool done() const;
  int64_t ns_since(const Event& other) const;  // both timed, and done
  CUevent handle() const { return event_; }

 private:
  const std::shared_ptr<Device> device_;
  CUevent event_ = nullptr;
};

void pin(const Device& device, void* host, int64_t bytes);
void unpin(const Device& device, void* host);
bool owns(const Device& device, const void* address);

}  // namespace ds::cuda
