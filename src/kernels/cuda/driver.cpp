// Problem: libds runs on machines without a GPU, so no part of it may need a CUDA library to load.
// Tests must be able to replace the driver.
//
// Invariant: every call of the driver goes through Driver, a struct of functions that dlsym found,
// and every object of the driver has one owner in this file, which destroys it. A call of an entry
// throws if the result is an error; a call of its `.function` returns the result, for destructors
// and for callers that handle errors themselves.
//
// Function names in cuda.h are macros (cuMemcpyAsync may expand to cuMemcpyAsync_v2), so an entry
// names the versioned symbol and gets its type from the declaration to which the macro expands.
//
// Arenas grow in place: an arena reserves as many addresses as the device has bytes of memory, and
// maps memory there as it is needed, with the driver's functions for virtual memory.
#include "kernels/cuda/driver.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/round.h"
#include "ds_plugin.h"
#include "kernels/cuda/library_function.h"
#include "kernels/cuda/modules.h"

namespace ds::cuda {

template <typename Function>
using Entry = LibraryFunction<check, Function>;

struct Driver : OpenedLibrary {
  Driver() : OpenedLibrary("DS_CUDA_DRIVER", {"libcuda.so.1"}, "CUDA driver") {}
  int version = 0;
  Entry<decltype(&::cuInit)> cuInit{*this, "cuInit"};
  Entry<decltype(&::cuDriverGetVersion)> cuDriverGetVersion{*this, "cuDriverGetVersion"};
  Entry<decltype(&::cuGetErrorName)> cuGetErrorName{*this, "cuGetErrorName"};
  Entry<decltype(&::cuGetErrorString)> cuGetErrorString{*this, "cuGetErrorString"};
  Entry<decltype(&::cuDeviceGetCount)> cuDeviceGetCount{*this, "cuDeviceGetCount"};
  Entry<decltype(&::cuDeviceGet)> cuDeviceGet{*this, "cuDeviceGet"};
  Entry<decltype(&::cuDeviceGetName)> cuDeviceGetName{*this, "cuDeviceGetName"};
  Entry<decltype(&::cuDeviceGetUuid)> cuDeviceGetUuid{*this, "cuDeviceGetUuid_v2"};
  Entry<decltype(&::cuDeviceGetAttribute)> cuDeviceGetAttribute{*this, "cuDeviceGetAttribute"};
  Entry<decltype(&::cuDeviceCanAccessPeer)> cuDeviceCanAccessPeer{*this, "cuDeviceCanAccessPeer"};
  Entry<decltype(&::cuDevicePrimaryCtxRetain)> cuDevicePrimaryCtxRetain{*this,
                                                                        "cuDevicePrimaryCtxRetain"};
  Entry<decltype(&::cuDevicePrimaryCtxRelease)> cuDevicePrimaryCtxRelease{
      *this, "cuDevicePrimaryCtxRelease_v2"};
  Entry<decltype(&::cuCtxPushCurrent)> cuCtxPushCurrent{*this, "cuCtxPushCurrent_v2"};
  Entry<decltype(&::cuCtxPopCurrent)> cuCtxPopCurrent{*this, "cuCtxPopCurrent_v2"};
  Entry<decltype(&::cuMemGetInfo)> cuMemGetInfo{*this, "cuMemGetInfo_v2"};
  Entry<decltype(&::cuMemGetAllocationGranularity)> cuMemGetAllocationGranularity{
      *this, "cuMemGetAllocationGranularity"};
  Entry<decltype(&::cuMemAddressReserve)> cuMemAddressReserve{*this, "cuMemAddressReserve"};
  Entry<decltype(&::cuMemAddressFree)> cuMemAddressFree{*this, "cuMemAddressFree"};
  Entry<decltype(&::cuMemCreate)> cuMemCreate{*this, "cuMemCreate"};
  Entry<decltype(&::cuMemRelease)> cuMemRelease{*this, "cuMemRelease"};
  Entry<decltype(&::cuMemMap)> cuMemMap{*this, "cuMemMap"};
  Entry<decltype(&::cuMemUnmap)> cuMemUnmap{*this, "cuMemUnmap"};
  Entry<decltype(&::cuMemSetAccess)> cuMemSetAccess{*this, "cuMemSetAccess"};
  Entry<decltype(&::cuMemHostRegister)> cuMemHostRegister{*this, "cuMemHostRegister_v2"};
  Entry<decltype(&::cuMemHostUnregister)> cuMemHostUnregister{*this, "cuMemHostUnregister"};
  Entry<decltype(&::cuPointerGetAttribute)> cuPointerGetAttribute{*this, "cuPointerGetAttribute"};
  Entry<decltype(&::cuMemcpyAsync)> cuMemcpyAsync{*this, "cuMemcpyAsync"};
  Entry<decltype(&::cuMemsetD8Async)> cuMemsetD8Async{*this, "cuMemsetD8Async"};
  Entry<decltype(&::cuStreamCreate)> cuStreamCreate{*this, "cuStreamCreate"};
  Entry<decltype(&::cuStreamDestroy)> cuStreamDestroy{*this, "cuStreamDestroy_v2"};
  Entry<decltype(&::cuStreamSynchronize)> cuStreamSynchronize{*this, "cuStreamSynchronize"};
  Entry<decltype(&::cuStreamWaitEvent)> cuStreamWaitEvent{*this, "cuStreamWaitEvent"};
  Entry<decltype(&::cuEventCreate)> cuEventCreate{*this, "cuEventCreate"};
  Entry<decltype(&::cuEventDestroy)> cuEventDestroy{*this, "cuEventDestroy_v2"};
  Entry<decltype(&::cuEventRecord)> cuEventRecord{*this, "cuEventRecord"};
  Entry<decltype(&::cuEventQuery)> cuEventQuery{*this, "cuEventQuery"};
  Entry<decltype(&::cuEventElapsedTime)> cuEventElapsedTime{*this, "cuEventElapsedTime_v2"};
  Entry<decltype(&::cuModuleLoadData)> cuModuleLoadData{*this, "cuModuleLoadData"};
  Entry<decltype(&::cuModuleUnload)> cuModuleUnload{*this, "cuModuleUnload"};
  Entry<decltype(&::cuModuleGetFunction)> cuModuleGetFunction{*this, "cuModuleGetFunction"};
  Entry<decltype(&::cuFuncSetAttribute)> cuFuncSetAttribute{*this, "cuFuncSetAttribute"};
  Entry<decltype(&::cuLaunchKernel)> cuLaunchKernel{*this, "cuLaunchKernel"};
  Entry<decltype(&::cuStreamBeginCapture)> cuStreamBeginCapture{*this, "cuStreamBeginCapture_v2"};
  Entry<decltype(&::cuStreamEndCapture)> cuStreamEndCapture{*this, "cuStreamEndCapture"};
  Entry<decltype(&::cuGraphInstantiate)> cuGraphInstantiate{*this, "cuGraphInstantiateWithFlags"};
  Entry<decltype(&::cuGraphDestroy)> cuGraphDestroy{*this, "cuGraphDestroy"};
  Entry<decltype(&::cuGraphLaunch)> cuGraphLaunch{*this, "cuGraphLaunch"};
  Entry<decltype(&::cuGraphExecDestroy)> cuGraphExecDestroy{*this, "cuGraphExecDestroy"};
  Entry<decltype(&::cuStreamWriteValue32)> cuStreamWriteValue32{*this, "cuStreamWriteValue32_v2"};
  Entry<decltype(&::cuMemHostAlloc)> cuMemHostAlloc{*this, "cuMemHostAlloc"};
  Entry<decltype(&::cuMemFreeHost)> cuMemFreeHost{*this, "cuMemFreeHost"};
};

namespace {

// The oldest driver on which the device code runs: its major version must be at least that of the
// toolkit.
constexpr int kLeastVersion = CUDA_VERSION / 1000 * 1000;
// The lowest supported major version of an architecture: sm_80.
constexpr int kLeastMajor = 8;

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Driver open_driver() {
  Driver driver;
  if (!driver.cuDriverGetVersion.function ||
      driver.cuDriverGetVersion.function(&driver.version) != CUDA_SUCCESS)
    refuse("'{}' is not a CUDA driver: it reports no version", driver.file);
  if (driver.version < kLeastVersion)
    refuse(
        "the CUDA driver '{}' supports CUDA {}, and this plugin needs {} or later: update the "
        "driver",
        driver.file, version_text(driver.version), version_text(kLeastVersion));
  if (!driver.missing.empty())
    refuse("the CUDA driver '{}' of version {} has no function {}", driver.file,
           version_text(driver.version), driver.missing);
  CUresult result = driver.cuInit.function(0);
  if (result != CUDA_SUCCESS) {
    const char* text = nullptr;
    driver.cuGetErrorString.function(result, &text);
    refuse("the CUDA driver '{}' of version {} does not start: {}", driver.file,
           version_text(driver.version), text ? text : "unknown error");
  }
  return driver;
}

// Classifies errors by what the caller can do: free memory, choose another device or call, or give
// up the device. All other errors count as failures of submitted work.
int32_t status_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return DS_PLUGIN_OUT_OF_MEMORY;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
      return DS_PLUGIN_REFUSED;
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_DEINITIALIZED:
      return DS_PLUGIN_LOST;
    default:
      return DS_PLUGIN_FAILED;
  }
}

CUmemAllocationProp kind_of_memory(CUdevice device) {
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  kind.location.id = device;
  return kind;
}

// Returns access descriptors for the device itself, which comes first, and for every peer that can
// access its memory: if ranks are threads of one process, NCCL lets one GPU read and write the
// buffers of another rank.
std::vector<CUmemAccessDesc> access_to_memory(CUdevice device) {
  CUmemAccessDesc access{};
  access.location = kind_of_memory(device).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  std::vector<CUmemAccessDesc> all{access};
  int count = 0;
  driver().cuDeviceGetCount(&count);
  for (int index = 0; index < count; ++index) {
    CUdevice peer = 0;
    int reaches = 0;
    driver().cuDeviceGet(&peer, index);
    if (peer != device) driver().cuDeviceCanAccessPeer(&reaches, peer, device);
    if (reaches == 0) continue;
    access.location.id = peer;
    all.push_back(access);
  }
  return all;
}

// Fills new memory with zeros and waits until this is done. A temporary stream is used, because the
// default stream would wait for the streams of the host application and break their captures.
void zero(CUdeviceptr at, size_t bytes) {
  CUstream stream = nullptr;
  driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  CUresult result = driver().cuMemsetD8Async.function(at, 0, bytes, stream);
  if (result == CUDA_SUCCESS) result = driver().cuStreamSynchronize.function(stream);
  driver().cuStreamDestroy.function(stream);
  check(result, "cuMemsetD8Async, or the wait for it");
}

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  driver().cuDeviceGetAttribute(&value, which, device);
  return value;
}

CUdeviceptr number_of(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

bool is_set(const char* variable, const char* value) {
  const char* given = std::getenv(variable);
  return given && std::strcmp(given, value) == 0;
}

}  // namespace

const Driver& driver() {
  static const Driver opened = open_driver();
  return opened;
}

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char *name = nullptr, *text = nullptr;
  driver().cuGetErrorName.function(result, &name);
  driver().cuGetErrorString.function(result, &text);
  throw Failure(status_of(result), fmt::format("{}: {} ({})", call, text ? text : "unknown error",
                                               name ? name : std::to_string(result)));
}

std::string driver_name() {
  return fmt::format("{} {}", driver().file, version_text(driver().version));
}

int device_count() {
  int count = 0;
  driver().cuDeviceGetCount(&count);
  return count;
}

// Opening a GPU may take seconds or never return, so each GPU has its own mutex, and threads that
// open other GPUs do not wait for it.
std::shared_ptr<Device> Device::open(int index) {
  struct Gpu {
    std::mutex opening;
    std::weak_ptr<Device> opened;
  };
  static std::mutex finding;
  // The map is never destroyed, because threads may open a GPU while the process exits.
  static auto& gpus = *new std::map<int, Gpu>;
  const int count = device_count();
  if (index >= count) refuse("there is no such device: {} has {}", driver_name(), count);
  Gpu* gpu = nullptr;
  {
    std::lock_guard lock(finding);
    gpu = &gpus[index];
  }
  std::lock_guard lock(gpu->opening);
  std::shared_ptr<Device> device = gpu->opened.lock();
  if (device) return device;
  device.reset(new Device(index));
  gpu->opened = device;
  return device;
}

Device::Device(int index) {
  driver().cuDeviceGet(&number, index);
  char name[128] = "";
  driver().cuDeviceGetName(name, sizeof name, number);
  product_ = name;
  CUuuid uuid{};
  driver().cuDeviceGetUuid(&uuid, number);
  for (char byte : uuid.bytes) identity_ += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  major_ = attribute(number, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  minor_ = attribute(number, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  multiprocessors_ = attribute(number, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  shared_bytes_ = attribute(number, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  if (major_ < kLeastMajor)
    refuse("{} is of architecture {}, and this plugin needs sm_80 or later", product_, arch());
  driver().cuDevicePrimaryCtxRetain(&context_, number);
  try {
    Scope scope(*this);
    const CUmemAllocationProp kind = kind_of_memory(number);
    size_t granularity = 0;
    driver().cuMemGetAllocationGranularity(&granularity, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    granularity_ = static_cast<int64_t>(granularity);
    load_modules();
  } catch (...) {
    leave();
    throw;
  }
}

Device::~Device() { leave(); }

std::string Device::arch() const { return fmt::format("sm_{}{}", major_, minor_); }

// Unloads the modules and releases the primary context. It is also called if the constructor fails.
void Device::leave() {
  {
    Scope scope(*this, For::ending);
    part_.reset();
    for (CUmodule module : modules_) driver().cuModuleUnload.function(module);
  }
  driver().cuDevicePrimaryCtxRelease.function(number);
}

void Device::load_modules() {
  for (const void* image : module_images()) {
    CUmodule module = nullptr;
    driver().cuModuleLoadData(&module, image);
    modules_.push_back(module);
  }
}

Device::Scope::Scope(const Device& device, For purpose) {
  const CUresult result = driver().cuCtxPushCurrent.function(device.context_);
  if (purpose == For::use) check(result, "cuCtxPushCurrent");
  entered_ = result == CUDA_SUCCESS;
}

Device::Scope::~Scope() {
  if (!entered_) return;
  CUcontext context = nullptr;
  driver().cuCtxPopCurrent.function(&context);
}

std::pair<int64_t, int64_t> Device::memory() const {
  Scope scope(*this);
  size_t free = 0, total = 0;
  driver().cuMemGetInfo(&free, &total);
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

// Finds a kernel by name in the plugin's few modules, and caches it.
CUfunction Device::function(const std::string& entry, uint32_t shared_bytes) {
  // The bytes of shared memory that every function may use without a request.
  constexpr uint32_t kAlways = 48 << 10;
  std::lock_guard lock(finding_);
  Found& found = functions_[entry];
  for (size_t i = 0; !found.function && i < modules_.size(); ++i) {
    CUresult result =
        driver().cuModuleGetFunction.function(&found.function, modules_[i], entry.c_str());
    if (result != CUDA_ERROR_NOT_FOUND) check(result, "cuModuleGetFunction");
  }
  if (!found.function)
    throw Failure(DS_PLUGIN_FAILED,
                  fmt::format("no module of this plugin has a function '{}'", entry));
  if (shared_bytes > static_cast<uint32_t>(shared_bytes_))
    refuse("kernel '{}' needs {} bytes of shared memory per block, but {} ({}) has {}", entry,
           shared_bytes, product_, arch(), shared_bytes_);
  if (shared_bytes > std::max(kAlways, found.shared_bytes)) {
    driver().cuFuncSetAttribute(found.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                static_cast<int>(shared_bytes));
    found.shared_bytes = shared_bytes;
  }
  return found.function;
}

Arena::Arena(std::shared_ptr<Device> device, int64_t bytes) : device_(std::move(device)) {
  Device::Scope scope(*device_);
  reserved_ = round_up(device_->memory().second, device_->granularity());
  driver().cuMemAddressReserve(&address_, static_cast<size_t>(reserved_), 0, 0, 0);
  try {
    map(bytes);
  } catch (...) {
    driver().cuMemAddressFree.function(address_, static_cast<size_t>(reserved_));
    throw;
  }
}

Arena::~Arena() {
  Device::Scope scope(*device_, Device::For::ending);
  for (const Piece& piece : pieces_) {
    driver().cuMemUnmap.function(address_ + static_cast<CUdeviceptr>(piece.begin),
                                 static_cast<size_t>(piece.bytes));
    driver().cuMemRelease.function(piece.handle);
  }
  driver().cuMemAddressFree.function(address_, static_cast<size_t>(reserved_));
}

void Arena::grow(int64_t bytes) {
  Device::Scope scope(*device_);
  map(bytes);
}

// Maps memory until at least `bytes` bytes are mapped, and clears the new memory. An error leaves
// the arena unchanged.
void Arena::map(int64_t bytes) {
  if (bytes > reserved_) {
    throw Failure(DS_PLUGIN_OUT_OF_MEMORY,
                  fmt::format("an arena of {} bytes is larger than the device's memory, {}", bytes,
                              device_->memory().second));
  }
  const int64_t end = round_up(bytes, device_->granularity());
  if (end <= mapped_) return;
  Piece piece{0, mapped_, end - mapped_};
  const auto size = static_cast<size_t>(piece.bytes);
  const CUdeviceptr at = address_ + static_cast<CUdeviceptr>(piece.begin);
  const CUmemAllocationProp kind = kind_of_memory(device_->number);
  CUresult result = driver().cuMemCreate.function(&piece.handle, size, &kind, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    auto [free, total] = device_->memory();
    throw Failure(DS_PLUGIN_OUT_OF_MEMORY,
                  fmt::format("cannot allocate {} bytes of device memory: {} of {} bytes are free",
                              size, free, total));
  }
  check(result, "cuMemCreate");
  bool there = false;
  try {
    driver().cuMemMap(at, size, 0, piece.handle, 0);
    there = true;
    const std::vector<CUmemAccessDesc> access = access_to_memory(device_->number);
    // If peers cannot have access, for example because their number is limited, the device itself
    // can still use the memory.
    if (driver().cuMemSetAccess.function(at, size, access.data(), access.size()) != CUDA_SUCCESS)
      driver().cuMemSetAccess(at, size, access.data(), 1);
    zero(at, size);
  } catch (...) {
    if (there) driver().cuMemUnmap.function(at, size);
    driver().cuMemRelease.function(piece.handle);
    throw;
  }
  pieces_.push_back(piece);
  mapped_ = end;
}

// The stream does not wait for the default stream, which belongs to the host application. The word
// of pinned memory is visible to the device, which writes it in stream order (mark()).
DriverStream::DriverStream(std::shared_ptr<Device> device, bool tf32)
    : device_(std::move(device)), tf32_(tf32), blocking_(is_set("DS_CUDA_BLOCKING", "1")) {
  Device::Scope scope(*device_);
  void* word = nullptr;
  driver().cuMemHostAlloc(&word, sizeof *marked_,
                          CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  marked_ = static_cast<uint32_t*>(word);
  *marked_ = 0;
  try {
    driver().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
  } catch (...) {
    driver().cuMemFreeHost.function(word);
    throw;
  }
}

DriverStream::~DriverStream() {
  Device::Scope scope(*device_, Device::For::ending);
  driver().cuStreamSynchronize.function(stream_);
  driver().cuStreamDestroy.function(stream_);
  driver().cuMemFreeHost.function(marked_);
}

void DriverStream::launch(const Launch& launch) {
  Device::Scope scope(*device_);
  CUfunction function = device_->function(launch.entry, launch.shared_bytes);
  void* args[] = {const_cast<void*>(launch.args)};
  CUresult result = driver().cuLaunchKernel.function(
      function, launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x, launch.block.y,
      launch.block.z, launch.shared_bytes, stream_, args, nullptr);
  check(result, launch.entry);
  if (blocking_) check(driver().cuStreamSynchronize.function(stream_), launch.entry);
}

void DriverStream::copy(void* to, const void* from, int64_t bytes) {
  Device::Scope scope(*device_);
  driver().cuMemcpyAsync(number_of(to), number_of(from), static_cast<size_t>(bytes), stream_);
}

void DriverStream::fill(void* to, int byte, int64_t bytes) {
  Device::Scope scope(*device_);
  driver().cuMemsetD8Async(number_of(to), static_cast<unsigned char>(byte),
                           static_cast<size_t>(bytes), stream_);
}

void DriverStream::record(CUevent event) {
  Device::Scope scope(*device_);
  driver().cuEventRecord(event, stream_);
}

void DriverStream::wait(CUevent event) {
  Device::Scope scope(*device_);
  driver().cuStreamWaitEvent(stream_, event, 0);
}

void DriverStream::finish() {
  Device::Scope scope(*device_);
  driver().cuStreamSynchronize(stream_);
}

void DriverStream::settle() {
  if (blocking_) finish();
}

// The mode is THREAD_LOCAL because other threads, of other ranks or of the host application, may
// meanwhile make calls that are forbidden during a capture in global mode.
void DriverStream::begin_capture() {
  Device::Scope scope(*device_);
  driver().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

void DriverStream::mark(uint32_t number) {
  Device::Scope scope(*device_);
  driver().cuStreamWriteValue32(stream_, number_of(marked_), number, CU_STREAM_WRITE_VALUE_DEFAULT);
}

bool captures() { return !is_set("DS_CUDA_GRAPHS", "0") && !is_set("DS_CUDA_BLOCKING", "1"); }

// The captured graph is destroyed after the executable graph has been instantiated from it.
Graph::Graph(DriverStream& stream) : device_(stream.device()) {
  Device::Scope scope(*device_);
  CUgraph captured = nullptr;
  driver().cuStreamEndCapture(stream.handle(), &captured);
  const CUresult made = driver().cuGraphInstantiate.function(&graph_, captured, 0);
  driver().cuGraphDestroy.function(captured);
  check(made, "cuGraphInstantiate");
}

Graph::~Graph() {
  if (!graph_) return;
  Device::Scope scope(*device_, Device::For::ending);
  driver().cuGraphExecDestroy.function(graph_);
}

void Graph::launch(DriverStream& stream) {
  Device::Scope scope(*device_);
  driver().cuGraphLaunch(graph_, stream.handle());
}

Event::Event(std::shared_ptr<Device> device, bool timed) : device_(std::move(device)) {
  Device::Scope scope(*device_);
  driver().cuEventCreate(&event_, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
}

Event::~Event() {
  Device::Scope scope(*device_, Device::For::ending);
  driver().cuEventDestroy.function(event_);
}

bool Event::done() const {
  Device::Scope scope(*device_);
  CUresult result = driver().cuEventQuery.function(event_);
  if (result == CUDA_ERROR_NOT_READY) return false;
  check(result, "cuEventQuery");
  return true;
}

int64_t Event::ns_since(const Event& other) const {
  Device::Scope scope(*device_);
  float ms = 0;
  driver().cuEventElapsedTime(&ms, other.event_, event_);
  return std::llround(static_cast<double>(ms) * 1e6);
}

void pin(const Device& device, void* host, int64_t bytes) {
  Device::Scope scope(device);
  driver().cuMemHostRegister(host, static_cast<size_t>(bytes), CU_MEMHOSTREGISTER_PORTABLE);
}

void unpin(const Device& device, void* host) {
  Device::Scope scope(device);
  driver().cuMemHostUnregister.function(host);
}

// The driver returns CUDA_ERROR_INVALID_VALUE for an address that it does not know, which is not an
// error here.
bool owns(const Device& device, const void* address) {
  Device::Scope scope(device);
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  unsigned type = 0;
  int number = -1;
  const CUresult known =
      driver().cuPointerGetAttribute.function(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
  if (known == CUDA_ERROR_INVALID_VALUE) return false;
  check(known, "cuPointerGetAttribute");
  driver().cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
  return type == CU_MEMORYTYPE_DEVICE && number == device.number;
}

}  // namespace ds::cuda
