// This file implements streams, tensors, and the exchange of tensors by DLPack in both directions.
//
// A tensor has memory, a layout and an owner. The owner is a block of memory that libds has
// allocated, an object of another library, or empty if the caller has lent the memory. All users of
// the memory (a handle, an export, a stream with work on it) share the owner, so tensors, engines
// and exports may be destroyed in any order.
//
// Strides may have any value within bounds, including negative ones and zero; only the target of a
// copy must have a separate place for each element. Device memory is checked at its lowest and its
// highest element, because a host address would otherwise cause an error only when a kernel runs.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/dlpack.h"
#include "api/handles.h"
#include "api/strides.h"
#include "core/base/bytes_text.h"
#include "core/base/device_name.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/shape.h"
#include "core/device/device.h"
#include "core/device/stream.h"
#include "engine/runtime.h"

namespace ds {
namespace {

constexpr size_t kMaxRank = 8;

// An element type of libds and its counterpart in DLPack.
struct DtypePair {
  DType dtype;
  dlpack::Type type;
};
constexpr DtypePair kTypes[] = {
    {DS_DTYPE_F32, {dlpack::kFloat, 32, 1}}, {DS_DTYPE_F64, {dlpack::kFloat, 64, 1}},
    {DS_DTYPE_F16, {dlpack::kFloat, 16, 1}}, {DS_DTYPE_BF16, {dlpack::kBfloat, 16, 1}},
    {DS_DTYPE_I32, {dlpack::kInt, 32, 1}},   {DS_DTYPE_I64, {dlpack::kInt, 64, 1}},
    {DS_DTYPE_U8, {dlpack::kUInt, 8, 1}},
};

// Returns DLPack's element type; every element type of libds has one.
dlpack::Type to_dlpack(DType dtype) {
  for (const DtypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.type;
  }
  raise(DS_ERROR_UNSUPPORTED, "DLPack has no element type {}", static_cast<int>(dtype));
}

// Returns the element type for a DLPack type. Throws for vectors of several lanes, because their
// layout differs from that of scalars.
DType from_dlpack(const dlpack::Type& type) {
  for (const DtypePair& pair : kTypes) {
    if (pair.type.code == type.code && pair.type.bits == type.bits && type.lanes == 1)
      return pair.dtype;
  }
  raise(DS_ERROR_UNSUPPORTED,
        "element type must be f32, f64, bf16, f16, i32, i64 or u8, got DLPack code {} with {} bits "
        "and {} lanes",
        type.code, type.bits, type.lanes);
}

bool known(DType dtype) { return dtype >= DS_DTYPE_F32 && dtype <= DS_DTYPE_U8; }

// Sets dims, strides and numel. If `strides` is null, the tensor is compact and row-major. Throws
// if the tensor is too large for the address space.
void set_shape(ds_tensor& tensor, std::span<const int64_t> dims, const int64_t* strides = nullptr) {
  require(dims.size() <= kMaxRank, "dims_count must be at most {}, got {}", kMaxRank, dims.size());
  int64_t limit = INT64_MAX / size_of(tensor.dtype);
  for (size_t i = 0; i < dims.size(); ++i) {
    require(dims[i] >= 0, "dims[{}] must not be negative, got {}", i, dims[i]);
    require(dims[i] == 0 || tensor.numel <= limit / dims[i],
            "dims[{}] = {} makes the tensor too large", i, dims[i]);
    tensor.numel *= dims[i];
  }
  tensor.dims.assign(dims.begin(), dims.end());
  if (!strides) {
    tensor.strides = compact_strides(dims);
    return;
  }
  tensor.strides.assign(strides, strides + dims.size());
  if (tensor.numel == 0) return;
  // An upper bound on the distance, in elements, from the first element to the farthest one in
  // either direction.
  int64_t reach = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    int64_t span = 0;
    bool fits = !__builtin_mul_overflow(dims[i] - 1, strides[i], &span) && span != INT64_MIN &&
                std::abs(span) <= limit - reach;
    require(fits, "strides[{}] = {} makes the tensor too large", i, strides[i]);
    reach += std::abs(span);
  }
}

// Returns the DLPack device for a device, or the CPU if `device` is null, which means the host.
dlpack::Device dlpack_device(const Device* device) {
  if (!device) return {dlpack::kCpu, 0};
  const std::optional<int32_t> gpu = cuda_number(device->name());
  return gpu ? dlpack::Device{dlpack::kCuda, *gpu} : dlpack::Device{dlpack::kExtension, 0};
}
// Returns a device as text for messages: its kind and, for a GPU, its number.
std::string dlpack_text(const dlpack::Device& device) {
  return device.kind == dlpack::kCuda ? fmt::format("{}:{}", device.kind, device.index)
                                      : std::to_string(device.kind);
}

// A tensor of another library, whose deleter is called when the last user of the memory has ended.
template <typename Managed>
struct Import {
  Managed* managed = nullptr;
  ~Import() {
    if (managed && managed->deleter) managed->deleter(managed);
  }
};

// A tensor for another library. It shares the memory and its owner with the tensor from which it
// was created.
template <typename Managed>
struct Export {
  Managed managed{};
  std::vector<int64_t> dims, strides;
  std::shared_ptr<Device> device;
  std::shared_ptr<void> owner;
};

template <typename Managed>
std::unique_ptr<Export<Managed>> make_export(const ds_tensor& tensor) {
  auto out = std::make_unique<Export<Managed>>();
  out->dims = tensor.dims;
  out->strides = tensor.strides;
  out->device = tensor.device;
  out->owner = tensor.owner;
  out->managed.tensor = {tensor.data,
                         dlpack_device(tensor.device.get()),
                         static_cast<int32_t>(tensor.dims.size()),
                         to_dlpack(tensor.dtype),
                         out->dims.data(),
                         out->strides.data(),
                         0};
  // The other library calls the deleter, which frees the export and releases its share of the
  // owner.
  out->managed.context = out.get();
  out->managed.deleter = [](Managed* self) { delete static_cast<Export<Managed>*>(self->context); };
  return out;
}

// Returns the device of a stream; null if the stream is NULL.
std::shared_ptr<Device> device_of(ds_stream* stream) {
  return need_or_null(stream, "stream") ? stream->stream->device() : nullptr;
}

// Checks memory that a caller lends: its lowest and its highest element must belong to the device
// and be aligned so that a kernel can read them. The bytes in between are not checked.
void need_on_device(const Device& device, const ds_tensor& tensor, void* data) {
  if (tensor.numel == 0) return;
  require(device.owns(data), "data must be memory of device '{}', got another address",
          device.name());
  const int64_t size = size_of(tensor.dtype);
  const auto beyond =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(size));
  require(beyond == 0,
          "data must be a multiple of {} bytes on device '{}', got an address {} bytes beyond one",
          size, device.name(), beyond);
  int64_t low = 0, high = 0;
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    const int64_t span = (tensor.dims[i] - 1) * tensor.strides[i];
    (span < 0 ? low : high) += span;
  }
  const auto at = reinterpret_cast<uintptr_t>(data);
  for (int64_t element : {low, high}) {
    const uintptr_t address = at + static_cast<uintptr_t>(element * size);
    require(
        device.owns(reinterpret_cast<void*>(address)) &&
            device.owns(reinterpret_cast<void*>(address + static_cast<uintptr_t>(size) - 1)),
        "data must be memory of device '{}' from element {} to {}, got one end at another address",
        device.name(), low, high);
  }
}

// Creates a tensor over the memory that a DLPack tensor describes. The owner is not set.
std::unique_ptr<ds_tensor> describe(const dlpack::Tensor& view, ds_stream* stream) {
  bool on_host = view.device.kind == dlpack::kCpu;
  std::shared_ptr<Device> device = device_of(stream);
  const dlpack::Device there = dlpack_device(device.get());
  const bool on_device =
      device && view.device.kind == there.kind && view.device.index == there.index;
  if (!on_host && !on_device) {
    raise(DS_ERROR_UNSUPPORTED, "tensor must be in host memory (device 1){}, got device {}",
          device ? fmt::format(" or on device '{}' ({})", device->name(), dlpack_text(there)) : "",
          dlpack_text(view.device));
  }
  require(view.rank >= 0 && (view.rank == 0 || view.shape), "tensor must have a shape, got rank {}",
          RankNumber(view.rank));
  auto tensor = std::make_unique<ds_tensor>();
  tensor->dtype = from_dlpack(view.type);
  auto rank = static_cast<size_t>(view.rank);
  set_shape(*tensor, {view.shape, rank}, view.strides);
  require(view.data || tensor->numel == 0, "tensor data must not be NULL with {} elements",
          tensor->numel);
  tensor->data = static_cast<char*>(view.data) + view.byte_offset;
  if (on_host) return tensor;
  need_on_device(*device, *tensor, tensor->data);
  tensor->device = std::move(device);
  return tensor;
}

// Takes ownership of a DLPack tensor. No code can throw after `managed` is set, so on an error the
// caller still owns the tensor.
template <typename Managed>
std::unique_ptr<ds_tensor> import(Managed* managed, ds_stream* stream) {
  std::unique_ptr<ds_tensor> tensor = describe(managed->tensor, stream);
  auto guard = std::make_shared<Import<Managed>>();
  guard->managed = managed;
  tensor->owner = std::move(guard);
  return tensor;
}

// Returns type and shape as text, for example "f32[2,3]".
std::string shape_text(const ds_tensor& tensor) {
  return dtype_name(tensor.dtype) + dims_text(tensor.dims);
}

// Throws if the target of a copy is read-only, or if two of its elements have one place.
void need_writable(const ds_tensor& tensor) {
  if (tensor.numel == 0) return;
  require(!tensor.readonly,
          "to must be writable, got a tensor that its library marks as read-only");
  for (size_t i = 0; i < tensor.dims.size(); ++i) {
    require(tensor.dims[i] <= 1 || tensor.strides[i] != 0,
            "to must have a place for each element, got stride 0 for {} elements of dimension {}",
            tensor.dims[i], i);
  }
  require(!shares_places(tensor),
          "to must have a place for each element, got dimensions {} with strides {}",
          dims_text(tensor.dims), dims_text(tensor.strides));
}

}  // namespace

void copy_tensor(const ds_tensor& to, const ds_tensor& from, ds_stream* stream) {
  std::shared_ptr<Device> device = to.device ? to.device : from.device;
  require(!from.device || from.device == device, "to and from must not lie on two devices");
  if (need_or_null(stream, "stream")) {
    require(!device || stream->stream->device() == device,
            "stream must be one of the tensors' device");
    DeviceQueue& queue = stream->stream->queue();
    copy_runs(to, from, [&](void* target, const void* source, size_t bytes) {
      queue.copy(target, source, static_cast<int64_t>(bytes));
    });
    stream->stream->keep(to.owner);
    return stream->stream->keep(from.owner);
  }
  if (device) {
    return copy_runs(to, from, [&](void* target, const void* source, size_t bytes) {
      device->copy(target, source, static_cast<int64_t>(bytes));
    });
  }
  // Source and target may overlap, because both tensors may be views of the same memory.
  copy_runs(to, from, [](void* target, const void* source, size_t bytes) {
    std::memmove(target, source, bytes);
  });
}

// On a device, the memory is an arena, which the tensor owns.
std::unique_ptr<ds_tensor> own_tensor(DType dtype, std::span<const int64_t> dims,
                                      std::shared_ptr<Device> device) {
  constexpr size_t kAlign = 64;
  auto tensor = std::make_unique<ds_tensor>();
  tensor->dtype = dtype;
  set_shape(*tensor, dims);
  // The size is increased by at least one byte before alignment, so that an empty tensor has an
  // address, too.
  size_t bytes = (tensor->bytes() + kAlign) / kAlign * kAlign;
  if (device) {
    std::shared_ptr<Arena> arena =
        device->make_arena(Device::Place::device, static_cast<int64_t>(bytes));
    tensor->data = arena->address();
    tensor->owner = std::move(arena);
    tensor->device = std::move(device);
    return tensor;
  }
  void* data = std::aligned_alloc(kAlign, bytes);
  if (!data) {
    raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses {} for a tensor",
          bytes_text(static_cast<int64_t>(bytes)));
  }
  tensor->owner = std::shared_ptr<void>(data, &std::free);
  std::memset(data, 0, bytes);
  tensor->data = data;
  return tensor;
}

// A device that shares the host's memory has no streams, so only NULL is valid for it.
StreamRef stream_of(ds_stream* stream, const ds_engine* engine) {
  if (!need_or_null(stream, "stream")) return nullptr;
  const Runtime& of = runtime(engine);
  require(stream->stream->device() == of.device(),
          "stream must be one that ds_stream_create made for this engine{}",
          of.shared_memory() ? ", and NULL on device '" + of.config().device + "'" : "");
  return stream->stream;
}

void need_device(const ds_tensor& tensor, const ds_engine* engine, const std::string& argument) {
  require(
      !tensor.device || tensor.device == runtime(engine).device(),
      "{} must lie on this engine's device '{}' or on the host, got one on another engine's device",
      argument, runtime(engine).config().device);
}

}  // namespace ds

ds_status ds_stream_create(ds_engine* engine, ds_stream** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    const ds::Runtime& runtime = ds::runtime(&ds::need(engine, "engine"));
    if (runtime.shared_memory()) {
      ds::raise(DS_ERROR_UNSUPPORTED, "device '{}' has no streams: its calls take NULL",
                runtime.config().device);
    }
    runtime.require_usable();
    auto handle = std::make_unique<ds_stream>();
    handle->stream = std::make_shared<ds::Stream>(runtime.device());
    *out = handle.release();
  });
}

ds_status ds_stream_synchronize(ds_stream* stream) {
  return ds::boundary([&] { ds::need(stream, "stream").stream->synchronize(); });
}

void ds_stream_destroy(ds_stream* stream) {
  // An engine whose queues wait for the stream shares it, so its work would continue after the
  // handle is destroyed.
  try {
    if (stream && !stream->is_inherited()) stream->stream->synchronize();
  } catch (const ds::Error&) {
    // The device has failed, so none of its work continues.
  }
  ds::destroy(stream);
}

// If data is not NULL, the caller lends the memory; otherwise the tensor owns its memory.
ds_status ds_tensor_create(ds_dtype dtype, const int64_t* dims, size_t dims_count,
                           const int64_t* strides, void* data, ds_stream* stream, ds_tensor** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    ds::require(ds::known(dtype), "dtype must be one of ds_dtype except NONE, got {}",
                static_cast<int>(dtype));
    ds::need_array(dims, dims_count, "dims");
    std::shared_ptr<ds::Device> device = ds::device_of(stream);
    if (!data) {
      ds::require(!strides, "strides must be NULL without data: own memory is compact row-major");
      *out = ds::own_tensor(dtype, {dims, dims_count}, std::move(device)).release();
      return;
    }
    auto tensor = std::make_unique<ds_tensor>();
    tensor->dtype = dtype;
    ds::set_shape(*tensor, {dims, dims_count}, strides);
    if (device) ds::need_on_device(*device, *tensor, data);
    tensor->data = data;
    tensor->device = std::move(device);
    *out = tensor.release();
  });
}

// Accepts either form; only the versioned one can say that the memory is read-only.
ds_status ds_tensor_from_dlpack(struct DLManagedTensor* managed,
                                struct DLManagedTensorVersioned* versioned, ds_stream* stream,
                                ds_tensor** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    ds::require(!managed != !versioned,
                "exactly one of managed and versioned must be given, got {}",
                managed ? "both" : "none");
    if (managed) {
      *out = ds::import(managed, stream).release();
      return;
    }
    if (versioned->version.major != ds::dlpack::kMajor) {
      ds::raise(DS_ERROR_UNSUPPORTED, "versioned must be of DLPack {}, got {}.{}",
                ds::dlpack::kMajor, versioned->version.major, versioned->version.minor);
    }
    std::unique_ptr<ds_tensor> tensor = ds::import(versioned, stream);
    tensor->readonly = (versioned->flags & ds::dlpack::kReadOnly) != 0;
    *out = tensor.release();
  });
}

ds_status ds_tensor_to_dlpack(ds_tensor* tensor, struct DLManagedTensor** out,
                              struct DLManagedTensorVersioned** out_versioned) {
  return ds::boundary([&] {
    ds::require(!out != !out_versioned,
                "exactly one of out and out_versioned must be given, got {}",
                out ? "both" : "none");
    if (out) *out = nullptr;
    if (out_versioned) *out_versioned = nullptr;
    const ds_tensor& t = ds::need(tensor, "tensor");
    if (out) {
      ds::require(!t.readonly,
                  "tensor is read-only, which only out_versioned can express: pass out_versioned");
      *out = &ds::make_export<DLManagedTensor>(t).release()->managed;
      return;
    }
    // Only the versioned form has a flag for read-only memory.
    auto made = ds::make_export<DLManagedTensorVersioned>(t);
    made->managed.version = {ds::dlpack::kMajor, ds::dlpack::kMinor};
    made->managed.flags = t.readonly ? ds::dlpack::kReadOnly : 0;
    *out_versioned = &made.release()->managed;
  });
}

ds_status ds_tensor_info(const ds_tensor* tensor, ds_dtype* out_dtype, int64_t* out_dims,
                         int64_t* out_strides, size_t dims_size, size_t* out_dims_count,
                         const char** out_device, void** out_data) {
  return ds::boundary([&] {
    const ds_tensor& t = ds::need(tensor, "tensor");
    ds::require(out_dims || out_strides || dims_size == 0,
                "out_dims or out_strides must not be NULL with dims_size {}", dims_size);
    if (out_dtype) *out_dtype = t.dtype;
    for (size_t i = 0; i < std::min(dims_size, t.dims.size()); ++i) {
      if (out_dims) out_dims[i] = t.dims[i];
      if (out_strides) out_strides[i] = t.strides[i];
    }
    if (out_dims_count) *out_dims_count = t.dims.size();
    if (out_device) *out_device = t.device ? t.device->name() : "cpu";
    if (out_data) *out_data = t.data;
  });
}

ds_status ds_tensor_copy(ds_tensor* to, const ds_tensor* from, ds_stream* stream) {
  return ds::boundary([&] {
    const ds_tensor& target = ds::need(to, "to");
    const ds_tensor& source = ds::need(from, "from");
    ds::require(target.dtype == source.dtype && target.dims == source.dims,
                "to and from must have one type and shape, got {} and {}", ds::shape_text(target),
                ds::shape_text(source));
    ds::need_writable(target);
    ds::copy_tensor(target, source, stream);
  });
}

void ds_tensor_destroy(ds_tensor* tensor) { ds::destroy(tensor); }
