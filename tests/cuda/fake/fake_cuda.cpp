// A CUDA driver in software, as a shared object that DS_CUDA_DRIVER names, so that libds_cuda.so
// runs on machines without a GPU. It enforces the rules of a real driver. Device addresses are
// reserved but never mapped, so that host code that uses one faults; the bytes are in an alias
// mapping. Each stream is a thread, and only events order two streams. Copies from pageable memory
// read it during the call, and copies from pinned memory when the stream reaches them. A stream
// that captures records its work with the current arguments, and its thread must not call anything
// that waits or allocates memory. The error of a launch is returned by all later calls. Device
// functions are those of tests/cuda/lane: device addresses in their arguments are replaced by those
// of the alias.
#include <sys/mman.h>
#include <unistd.h>

#include "fake_driver.h"

using namespace ds::fake_driver;

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
