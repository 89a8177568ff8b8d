// A CUDA driver in software, as a shared object that DS_CUDA_DRIVER names, so that libds_cuda.so
// runs on machines without a GPU. It enforces the rules of a real driver. Device addresses are
// reserved but never mapped, so that host code that uses one faults; the bytes are in an alias
// mapping. Each stream is a thread, and only events order two streams. Copies from pageable memory
// read it during the call, and copies from pinned memory when the stream reaches them. A stream
// that captures records its work with the current arguments, and its thread must not call anything
// that waits or allocates memory. The error of a launch is returned by all later calls. Device
// functions are those of tests/cuda/lane: device addresses in their arguments are replaced by those
// of the alias.
#include "fake_cuda.h"

#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/lane/lane.h"

namespace {

constexpr size_t kGranularity = size_t{2} << 20;

int64_t number_from(const char* variable, int64_t otherwise) {
  const char* given = std::getenv(variable);
  return given && *given ? std::atoll(given) : otherwise;
}

// --- devices ---

// A CUdevice is an index into CUDA_VISIBLE_DEVICES or, if that is not set, the number of a GPU.
constexpr int kMostDevices = 72;
thread_local std::vector<CUcontext> contexts;

std::vector<int> gpus() {
  std::vector<int> out;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  for (const char* at = visible; at && *at;
       at = std::strchr(at, ',') ? std::strchr(at, ',') + 1 : nullptr)
    out.push_back(std::atoi(at));
  if (!visible) {
    for (int64_t i = 0; i < number_from("DS_FAKE_CUDA_DEVICES", 1); ++i)
      out.push_back(static_cast<int>(i));
  }
  return out;
}

// Returns the calling thread's current device, or -1 if it has no context.
int device_now() {
  return contexts.empty() ? -1 : static_cast<int>(reinterpret_cast<uintptr_t>(contexts.back())) - 1;
}

// --- errors ---

struct Injected {
  std::mutex mutex;
  std::string kind;
  int64_t at = 0;
  std::atomic<int64_t> creates{0}, launches{0}, calls{0}, captured{0}, graphs{0}, replays{0},
      marks{0};
  std::atomic<int64_t> enters{0};
  std::atomic<bool> outside{false};
  // A CUresult that every call returns from now on.
  std::atomic<int> sticky{CUDA_SUCCESS};
};
Injected& injected() {
  static Injected one;
  return one;
}

bool injected_now(const char* kind, int64_t number) {
  Injected& in = injected();
  std::lock_guard lock(in.mutex);
  return in.kind == kind && number == in.at;
}

std::atomic<int64_t> objects{0}, bytes_taken[kMostDevices], live_graphs{0};

// Returns the error that every call on a device must return now, or CUDA_SUCCESS.
CUresult state_of_call() {
  Injected& in = injected();
  if (in.sticky != CUDA_SUCCESS) return static_cast<CUresult>(in.sticky.load());
  return contexts.empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

// Counts the call and returns state_of_call().
CUresult begin_call() {
  Injected& in = injected();
  if (injected_now("lost", ++in.calls)) in.sticky = CUDA_ERROR_DEVICE_UNAVAILABLE;
  return state_of_call();
}
#define BEGIN_CALL() \
  if (CUresult wrong = begin_call(); wrong != CUDA_SUCCESS) return wrong

// --- memory ---

struct Range {
  size_t bytes = 0;
  std::byte* alias = nullptr;
  // The device whose memory is mapped in this range.
  int device = -1;
};
std::shared_mutex ranges_mutex;
// Ranges of device addresses and of pinned memory, by first address.
std::map<uintptr_t, Range> ranges;
std::map<uintptr_t, size_t> pinned;
struct Allocation {
  int file = -1, device = 0;
  size_t bytes = 0;
};

bool in_device(const void* address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  std::shared_lock lock(ranges_mutex);
  auto next = ranges.upper_bound(at);
  if (next == ranges.begin()) return false;
  const auto& [begin, range] = *std::prev(next);
  return at < begin + range.bytes;
}

// Returns the device to which the memory belongs, or -1 for other memory.
int device_of(uint64_t address) {
  std::shared_lock lock(ranges_mutex);
  auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return -1;
  const auto& [begin, range] = *std::prev(next);
  return address < begin + range.bytes ? range.device : -1;
}

bool is_pinned(const void* address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  std::shared_lock lock(ranges_mutex);
  auto next = pinned.upper_bound(at);
  return next != pinned.begin() && at < std::prev(next)->first + std::prev(next)->second;
}

// --- streams ---

std::atomic<int64_t> jitter_us{0};

// Work with its arguments. The parameter is the stream on which it is launched.
using Work = std::function<void(CUstream)>;
struct Capture {
  std::vector<Work> work;
  bool valid = true;
};
thread_local Capture* capturing_here = nullptr;
struct Graph {
  std::vector<Work> work;
  std::shared_ptr<std::atomic<int64_t>> running = std::make_shared<std::atomic<int64_t>>(0);
};

// Returns whether the calling thread captures, and then invalidates the capture. Called by
// functions that wait or allocate memory, which a capturing thread must not call.
bool forbidden_here() {
  if (capturing_here) capturing_here->valid = false;
  return capturing_here != nullptr;
}

class Stream {
 public:
  std::atomic<Capture*> capture{nullptr};
  Stream() : thread_([this] { loop(); }) {}
  ~Stream() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void give(std::function<void()> task) {
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
      ++given_;
    }
    changed_.notify_all();
  }
  void finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ == given_; });
  }

 private:
  void loop() {
    std::minstd_rand random(static_cast<unsigned>(reinterpret_cast<uintptr_t>(this) >> 4));
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return over_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (const int64_t us = jitter_us; us > 0 && random() % 4 == 0)
        std::this_thread::sleep_for(std::chrono::microseconds(static_cast<int64_t>(random()) % us));
      task();
      task = nullptr;
      lock.lock();
      ++ended_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t given_ = 0, ended_ = 0;
  bool over_ = false;
  std::thread thread_;
};

Stream& stream_of(CUstream stream) {
  // This stream ends with the process.
  static auto* usual = new Stream();
  return stream ? *reinterpret_cast<Stream*>(stream) : *usual;
}

// Submits work to a stream. After an error, work is skipped, but waits continue.
void give_work(CUstream stream, std::function<void()> body) {
  stream_of(stream).give([body = std::move(body)] {
    if (injected().sticky == CUDA_SUCCESS) body();
  });
}

// Runs the work now or, if the stream captures, in each launch of the graph.
CUresult perform(CUstream stream, Work work) {
  Capture* capture = stream_of(stream).capture;
  if (!capture) {
    work(stream);
    return CUDA_SUCCESS;
  }
  if (injected_now("capture", ++injected().captured)) capture->valid = false;
  if (!capture->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture->work.push_back(std::move(work));
  return CUDA_SUCCESS;
}

// Returns whether the stream captures, and then invalidates the capture. Called by functions that
// the plugin must not call on such a stream.
bool refuses_capture(CUstream stream) {
  Capture* capture = stream_of(stream).capture;
  if (capture) capture->valid = false;
  return capture != nullptr;
}

// The state of one record of an event.
struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::chrono::steady_clock::time_point when;
};
struct Event {
  bool timed = false;
  std::mutex mutex;
  std::shared_ptr<Record> latest;
};
std::shared_ptr<Record> latest_of(CUevent event) {
  auto* own = reinterpret_cast<Event*>(event);
  std::lock_guard lock(own->mutex);
  return own->latest;
}

// Returns the arguments with device addresses replaced by those of the alias. Sets *foreign if an
// address belongs to another device.
std::vector<uint64_t> reached(const void* args, size_t bytes, bool* foreign) {
  std::vector<uint64_t> words((bytes + 7) / 8);
  std::memcpy(words.data(), args, bytes);
  for (uint64_t& word : words) {
    const int device = device_of(word);
    *foreign = *foreign || (device >= 0 && device != device_now());
    word = reinterpret_cast<uint64_t>(fake_cuda_reach(reinterpret_cast<void*>(word)));
  }
  return words;
}

}  // namespace

void fake_cuda_fail(const char* error) {
  Injected& in = injected();
  std::lock_guard lock(in.mutex);
  std::string text(error);
  size_t colon = text.find(':');
  in.kind = text.substr(0, colon);
  in.at = colon == std::string::npos ? 0 : std::atoll(text.c_str() + colon + 1);
  in.creates = in.launches = in.calls = in.captured = in.graphs = in.replays = in.marks = 0;
  in.sticky = CUDA_SUCCESS;
  in.enters = 0;
  in.outside = false;
}

void fake_cuda_jitter(int64_t us) { jitter_us = us; }

void fake_cuda_counts(int64_t out[8]) {
  Injected& in = injected();
  size_t i = 0;
  for (const std::atomic<int64_t>* count : {&in.creates, &in.launches, &in.calls, &in.captured,
                                            &in.graphs, &in.replays, &in.marks, &live_graphs})
    out[i++] = *count;
}

void fake_cuda_live(int64_t* bytes, int64_t* count) {
  *bytes = 0;
  for (const auto& taken : bytes_taken) *bytes += taken;
  *count = objects;
}

void* fake_cuda_reach(void* address) {
  auto at = reinterpret_cast<uintptr_t>(address);
  std::shared_lock lock(ranges_mutex);
  auto next = ranges.upper_bound(at);
  if (next == ranges.begin()) return address;
  const auto& [begin, range] = *std::prev(next);
  return at < begin + range.bytes ? range.alias + (at - begin) : address;
}

bool fake_cuda_take(int gpu, int64_t bytes) {
  std::atomic<int64_t>& taken = bytes_taken[gpu];
  if (taken + bytes > number_from("DS_FAKE_CUDA_MEMORY", int64_t{1} << 30)) return false;
  taken += bytes;
  return true;
}

int fake_cuda_gpu() { return device_now() < 0 ? -1 : gpus().at(static_cast<size_t>(device_now())); }

void fake_cuda_enqueue(void* stream, void (*body)(void*), void (*end)(void*), void* data) {
  std::shared_ptr<void> own(data, end);
  perform(static_cast<CUstream>(stream),
          [=](CUstream s) { give_work(s, [=] { body(own.get()); }); });
}

CUresult cuInit(unsigned) {
  return static_cast<CUresult>(number_from("DS_FAKE_CUDA_INIT", CUDA_SUCCESS));
}

CUresult cuDriverGetVersion(int* version) {
  *version = static_cast<int>(number_from("DS_FAKE_CUDA_VERSION", CUDA_VERSION));
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = error == CUDA_ERROR_OUT_OF_MEMORY                ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == CUDA_ERROR_LAUNCH_FAILED              ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == CUDA_ERROR_DEVICE_UNAVAILABLE         ? "CUDA_ERROR_DEVICE_UNAVAILABLE"
          : error == CUDA_ERROR_INVALID_CONTEXT            ? "CUDA_ERROR_INVALID_CONTEXT"
          : error == CUDA_ERROR_NOT_FOUND                  ? "CUDA_ERROR_NOT_FOUND"
          : error == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ? "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
                                                           : "CUDA_ERROR_UNKNOWN";
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY        ? "out of memory"
          : error == CUDA_ERROR_LAUNCH_FAILED      ? "unspecified launch failure"
          : error == CUDA_ERROR_DEVICE_UNAVAILABLE ? "the device is unavailable"
          : error == CUDA_ERROR_NO_DEVICE          ? "no CUDA-capable device is detected"
          : error == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
              ? "operation failed due to a previous error during capture"
              : "an error";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  *count = static_cast<int>(gpus().size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::snprintf(name, static_cast<size_t>(size), "fake GPU");
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, 0, sizeof uuid->bytes);
  uuid->bytes[0] = 0x6a;
  uuid->bytes[15] = static_cast<char>(gpus().at(static_cast<size_t>(device)));
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  const auto arch = static_cast<int>(number_from("DS_FAKE_CUDA_ARCH", 90));
  if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) {
    *value = arch / 10;
  } else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) {
    *value = arch % 10;
  } else if (attribute == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
    *value = 132;
  } else if (attribute == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) {
    *value = static_cast<int>(number_from("DS_FAKE_CUDA_SHARED", 227 << 10));
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  std::this_thread::sleep_for(std::chrono::milliseconds(number_from("DS_FAKE_CUDA_OPEN_MS", 0)));
  *context = reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1);
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice) {
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  Injected& in = injected();
  if (injected_now("enter", ++in.enters)) in.outside = true;
  if (in.outside) return CUDA_ERROR_INVALID_CONTEXT;
  contexts.push_back(context);
  return CUDA_SUCCESS;
}

// Aborts if the caller has not pushed a context, because the call would pop the context of another
// caller.
CUresult cuCtxPopCurrent(CUcontext* context) {
  if (contexts.empty()) {
    std::fprintf(stderr, "fake_cuda: a context is left that was not entered\n");
    std::abort();
  }
  *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  BEGIN_CALL();
  *total = static_cast<size_t>(number_from("DS_FAKE_CUDA_MEMORY", int64_t{1} << 30));
  *free = *total - std::min(*total, static_cast<size_t>(bytes_taken[device_now()].load()));
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *out = kGranularity;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* out, size_t size, size_t, CUdeviceptr,
                             unsigned long long) {
  BEGIN_CALL();
  if (size % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  auto reserve = [&] {
    return mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  };
  void *address = reserve(), *alias = reserve();
  if (address == MAP_FAILED || alias == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = reinterpret_cast<CUdeviceptr>(address);
  std::unique_lock lock(ranges_mutex);
  ranges[*out] = {size, static_cast<std::byte*>(alias), -1};
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  std::unique_lock lock(ranges_mutex);
  auto found = ranges.find(address);
  if (found == ranges.end() || found->second.bytes != size) return CUDA_ERROR_INVALID_VALUE;
  munmap(reinterpret_cast<void*>(address), size);
  munmap(found->second.alias, size);
  ranges.erase(found);
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t size,
                     const CUmemAllocationProp* kind, unsigned long long) {
  BEGIN_CALL();
  if (forbidden_here()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (size == 0 || size % kGranularity != 0) return CUDA_ERROR_INVALID_VALUE;
  const int64_t total = number_from("DS_FAKE_CUDA_MEMORY", int64_t{1} << 30);
  if (injected_now("memory", ++injected().creates)) return CUDA_ERROR_OUT_OF_MEMORY;
  std::atomic<int64_t>& taken = bytes_taken[kind->location.id];
  if (taken + static_cast<int64_t>(size) > total) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = std::make_unique<Allocation>();
  made->file = memfd_create("fake_cuda", MFD_CLOEXEC);
  made->bytes = size;
  if (made->file < 0 || ftruncate(made->file, static_cast<off_t>(size)) != 0)
    return CUDA_ERROR_OUT_OF_MEMORY;
  made->device = kind->location.id;
  taken += static_cast<int64_t>(size);
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(made.release());
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  std::unique_ptr<Allocation> own(reinterpret_cast<Allocation*>(handle));
  close(own->file);
  bytes_taken[own->device] -= static_cast<int64_t>(own->bytes);
  return CUDA_SUCCESS;
}

// Maps memory, which faults until access is granted, even in streams. Its initial bytes are not
// zero.
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  BEGIN_CALL();
  auto* own = reinterpret_cast<Allocation*>(handle);
  void* alias = fake_cuda_reach(reinterpret_cast<void*>(address));
  if (offset != 0 || size != own->bytes || alias == reinterpret_cast<void*>(address))
    return CUDA_ERROR_INVALID_VALUE;
  void* mapped = mmap(alias, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, own->file, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  {
    std::unique_lock lock(ranges_mutex);
    std::prev(ranges.upper_bound(address))->second.device = own->device;
  }
  std::memset(mapped, 0xA5, 4096);
  mprotect(mapped, size, PROT_NONE);
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  void* alias = fake_cuda_reach(reinterpret_cast<void*>(address));
  mmap(alias, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int* reaches, CUdevice device, CUdevice peer) {
  *reaches = device != peer;
  return CUDA_SUCCESS;
}

// Grants access to memory. Fails unless access is granted to all devices, because all devices here
// can access each other's memory, and a library may let one device read the memory of another.
CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* access,
                        size_t count) {
  BEGIN_CALL();
  int devices = 0;
  cuDeviceGetCount(&devices);
  std::set<int> allowed;
  for (size_t i = 0; i < count; ++i) {
    if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      allowed.insert(access[i].location.id);
  }
  if (static_cast<int>(allowed.size()) != devices) return CUDA_ERROR_INVALID_VALUE;
  mprotect(fake_cuda_reach(reinterpret_cast<void*>(address)), size, PROT_READ | PROT_WRITE);
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  BEGIN_CALL();
  if (forbidden_here()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  *out = std::malloc(bytes);
  std::unique_lock lock(ranges_mutex);
  pinned[reinterpret_cast<uintptr_t>(*out)] = bytes;
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* host) {
  std::unique_lock lock(ranges_mutex);
  if (pinned.erase(reinterpret_cast<uintptr_t>(host)) == 0) return CUDA_ERROR_INVALID_VALUE;
  std::free(host);
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void* host, size_t bytes, unsigned) {
  BEGIN_CALL();
  if (forbidden_here()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::unique_lock lock(ranges_mutex);
  if (!pinned.try_emplace(reinterpret_cast<uintptr_t>(host), bytes).second)
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* host) {
  std::unique_lock lock(ranges_mutex);
  if (pinned.erase(reinterpret_cast<uintptr_t>(host)) == 0)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* out, CUpointer_attribute which, CUdeviceptr address) {
  BEGIN_CALL();
  const auto* at = reinterpret_cast<const void*>(address);
  const bool ours = in_device(at);
  if (!ours && !is_pinned(at)) return CUDA_ERROR_INVALID_VALUE;
  if (which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
    *static_cast<unsigned*>(out) = ours ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  } else if (which == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    *static_cast<int*>(out) = device_of(address);
  } else {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  BEGIN_CALL();
  void *target = reinterpret_cast<void*>(to), *source = reinterpret_cast<void*>(from);
  const bool pageable_source = !in_device(source) && !is_pinned(source);
  const bool pageable_target = !in_device(target) && !is_pinned(target);
  target = fake_cuda_reach(target);
  if ((pageable_source || pageable_target) && refuses_capture(stream))
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (pageable_source) {
    auto staged = std::make_shared<std::vector<std::byte>>(bytes);
    std::memcpy(staged->data(), source, bytes);
    give_work(stream, [=] { std::memcpy(target, staged->data(), bytes); });
  } else {
    source = fake_cuda_reach(source);
    const CUresult given = perform(
        stream, [=](CUstream s) { give_work(s, [=] { std::memmove(target, source, bytes); }); });
    if (given != CUDA_SUCCESS) return given;
  }
  if (pageable_target) stream_of(stream).finish();
  return static_cast<CUresult>(injected().sticky.load());
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream) {
  BEGIN_CALL();
  auto* address = reinterpret_cast<void*>(to);
  if (!in_device(address) && !is_pinned(address)) return CUDA_ERROR_INVALID_VALUE;
  void* target = fake_cuda_reach(address);
  return perform(stream,
                 [=](CUstream s) { give_work(s, [=] { std::memset(target, byte, bytes); }); });
}

CUresult cuStreamCreate(CUstream* out, unsigned) {
  BEGIN_CALL();
  *out = reinterpret_cast<CUstream>(new Stream());
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream) {
  delete reinterpret_cast<Stream*>(stream);
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
  CUresult wrong = begin_call();
  if (refuses_capture(stream) || forbidden_here()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stream_of(stream).finish();
  return wrong != CUDA_SUCCESS ? wrong : static_cast<CUresult>(injected().sticky.load());
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  BEGIN_CALL();
  if (refuses_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::shared_ptr<Record> record = latest_of(event);
  if (!record) return CUDA_SUCCESS;
  stream_of(stream).give([record] {
    std::unique_lock lock(record->mutex);
    record->changed.wait(lock, [&] { return record->done; });
  });
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* out, unsigned flags) {
  BEGIN_CALL();
  auto* made = new Event();
  made->timed = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  *out = reinterpret_cast<CUevent>(made);
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event) {
  delete reinterpret_cast<Event*>(event);
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  BEGIN_CALL();
  if (refuses_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  auto record = std::make_shared<Record>();
  {
    auto* own = reinterpret_cast<Event*>(event);
    std::lock_guard lock(own->mutex);
    own->latest = record;
  }
  stream_of(stream).give([record] {
    std::lock_guard lock(record->mutex);
    record->done = true;
    record->when = std::chrono::steady_clock::now();
    record->changed.notify_all();
  });
  return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float* out, CUevent from, CUevent to) {
  BEGIN_CALL();
  const std::shared_ptr<Record> first = latest_of(from), last = latest_of(to);
  if (!first || !last || !reinterpret_cast<Event*>(from)->timed ||
      !reinterpret_cast<Event*>(to)->timed)
    return CUDA_ERROR_INVALID_HANDLE;
  std::scoped_lock lock(first->mutex, last->mutex);
  if (!first->done || !last->done) return CUDA_ERROR_NOT_READY;
  *out = std::chrono::duration<float, std::milli>(last->when - first->when).count();
  return CUDA_SUCCESS;
}

// Does not count the call: a waiting thread polls as often as time allows, so the count would
// differ from run to run.
CUresult cuEventQuery(CUevent event) {
  if (CUresult wrong = state_of_call(); wrong != CUDA_SUCCESS) return wrong;
  if (forbidden_here()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  std::shared_ptr<Record> record = latest_of(event);
  if (!record) return CUDA_SUCCESS;
  std::lock_guard lock(record->mutex);
  return record->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuModuleLoadData(CUmodule* out, const void* image) {
  BEGIN_CALL();
  *out = static_cast<CUmodule>(const_cast<void*>(image));
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule) {
  --objects;
  return CUDA_SUCCESS;
}

// Every module contains every function.
CUresult cuModuleGetFunction(CUfunction* out, CUmodule, const char* name) {
  BEGIN_CALL();
  const lane::Entry* entry = lane::find(name);
  if (!entry) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<CUfunction>(const_cast<lane::Entry*>(entry));
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) {
  BEGIN_CALL();
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** args, void** extra) {
  BEGIN_CALL();
  if (extra || grid_x == 0 || grid_y == 0 || grid_z == 0 || block_x * block_y * block_z > 1024 ||
      block_x * block_y * block_z == 0 || grid_y > 65535 || grid_z > 65535 ||
      shared_bytes > 227 * 1024)
    return CUDA_ERROR_INVALID_VALUE;
  const auto* entry = reinterpret_cast<const lane::Entry*>(function);
  bool foreign = false;
  std::vector<uint64_t> words = reached(args[0], entry->args_bytes, &foreign);
  if (foreign) std::fprintf(stderr, "fake_cuda: %s uses memory of another device\n", entry->name);
  return perform(stream, [=, words = std::move(words)](CUstream on) {
    const int64_t number = ++injected().launches;
    const bool fails = injected_now("launch", number);
    give_work(on, [=] {
      try {
        if (foreign) injected().sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
        if (foreign) return;
        if (fails) injected().sticky = CUDA_ERROR_LAUNCH_FAILED;
        if (!fails)
          entry->launch(words.data(), {grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                        shared_bytes, static_cast<uint64_t>(number));
      } catch (const std::exception& error) {
        std::fprintf(stderr, "fake_cuda: %s: %s\n", entry->name, error.what());
        injected().sticky = CUDA_ERROR_LAUNCH_FAILED;
      }
    });
  });
}

CUresult cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
  BEGIN_CALL();
  auto* word = reinterpret_cast<void*>(address);
  if (address % sizeof value != 0 || (!in_device(word) && !is_pinned(word)))
    return CUDA_ERROR_INVALID_VALUE;
  if (refuses_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  ++injected().marks;
  auto* target = static_cast<uint32_t*>(fake_cuda_reach(word));
  give_work(stream,
            [=] { std::atomic_ref<uint32_t>(*target).store(value, std::memory_order_release); });
  return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode) {
  BEGIN_CALL();
  if (!stream || mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL || capturing_here ||
      stream_of(stream).capture)
    return CUDA_ERROR_ILLEGAL_STATE;
  capturing_here = new Capture();
  stream_of(stream).capture = capturing_here;
  return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  *out = nullptr;
  const CUresult wrong = begin_call();
  if (stream_of(stream).capture != capturing_here || !capturing_here)
    return CUDA_ERROR_ILLEGAL_STATE;
  std::unique_ptr<Capture> own(std::exchange(capturing_here, nullptr));
  stream_of(stream).capture = nullptr;
  if (wrong != CUDA_SUCCESS) return wrong;
  if (!own->valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  auto graph = std::make_unique<Graph>();
  graph->work = std::move(own->work);
  *out = reinterpret_cast<CUgraph>(graph.release());
  ++objects;
  return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
  delete reinterpret_cast<Graph*>(graph);
  --objects;
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiate(CUgraphExec* out, CUgraph graph, unsigned long long) {
  BEGIN_CALL();
  if (injected_now("instantiate", ++injected().graphs)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = std::make_unique<Graph>();
  made->work = reinterpret_cast<Graph*>(graph)->work;
  *out = reinterpret_cast<CUgraphExec>(made.release());
  ++objects;
  ++live_graphs;
  return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  BEGIN_CALL();
  if (refuses_capture(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (injected_now("replay", ++injected().replays)) {
    injected().sticky = CUDA_ERROR_LAUNCH_FAILED;
    return CUDA_ERROR_LAUNCH_FAILED;
  }
  auto* own = reinterpret_cast<Graph*>(graph);
  ++*own->running;
  for (const Work& work : own->work) work(stream);
  stream_of(stream).give([running = own->running] { --*running; });
  return CUDA_SUCCESS;
}

// Aborts if a launch of the graph is still running, which would be undefined behaviour.
CUresult cuGraphExecDestroy(CUgraphExec graph) {
  auto* own = reinterpret_cast<Graph*>(graph);
  if (*own->running != 0) {
    std::fprintf(stderr, "fake_cuda: a graph was destroyed while it was running\n");
    std::abort();
  }
  delete own;
  --objects;
  --live_graphs;
  return CUDA_SUCCESS;
}
