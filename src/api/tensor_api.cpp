#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "api/boundary.h"
#include "api/dlpack.h"
#include "api/handles.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/shape.h"

namespace ds {
namespace {

constexpr size_t kMaxRank = 8;

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

dlpack::Type to_dlpack(DType dtype) {
  for (const DtypePair& pair : kTypes) {
    if (pair.dtype == dtype) return pair.type;
  }
  raise(DS_ERROR_UNSUPPORTED, "DLPack has no element type {}", static_cast<int>(dtype));
}

DType from_dlpack(const dlpack::Type& type) {
  for (const DtypePair& pair : kTypes) {
    if (pair.type.code == type.code && pair.type.bits == type.bits && type.lanes == 1) return pair.dtype;
  }
  raise(DS_ERROR_UNSUPPORTED,
        "element type must be f32, f64, bf16, f16, i32, i64 or u8, got DLPack code {} with {} bits and {} "
        "lanes",
        type.code, type.bits, type.lanes);
}

bool known(DType dtype) { return dtype >= DS_DTYPE_F32 && dtype <= DS_DTYPE_U8; }

// Sets dims and numel; refuses what does not fit memory.
void set_shape(ds_tensor& tensor, std::span<const int64_t> dims) {
  require(dims.size() <= kMaxRank, "dims_count must be at most {}, got {}", kMaxRank, dims.size());
  int64_t limit = INT64_MAX / size_of(tensor.dtype);
  for (size_t i = 0; i < dims.size(); ++i) {
    require(dims[i] >= 0, "dims[{}] must not be negative, got {}", i, dims[i]);
    require(dims[i] == 0 || tensor.numel <= limit / dims[i], "dims[{}] = {} makes the tensor too large", i,
            dims[i]);
    tensor.numel *= dims[i];
  }
  tensor.dims.assign(dims.begin(), dims.end());
}

void check_compact(const dlpack::Tensor& view) {
  if (!view.strides) return;
  int64_t compact = 1;
  for (int32_t i = view.rank - 1; i >= 0; --i) {
    if (view.shape[i] != 1 && view.strides[i] != compact) {
      raise(DS_ERROR_UNSUPPORTED, "tensor must be compact row-major: stride {} must be {}, got {}", i,
            compact, view.strides[i]);
    }
    compact *= view.shape[i];
  }
}

// A tensor of another library, given back when the last handle on it is gone.
struct Import {
  DLManagedTensor* managed = nullptr;
  ~Import() {
    if (managed && managed->deleter) managed->deleter(managed);
  }
};

// A view handed to another library: it shares the memory with the tensor that it was made from.
struct Export {
  DLManagedTensor managed{};
  std::vector<int64_t> dims, strides;
  std::shared_ptr<void> owner;
};

std::unique_ptr<Export> make_export(const ds_tensor& tensor) {
  auto out = std::make_unique<Export>();
  out->dims = tensor.dims;
  out->strides.resize(tensor.dims.size());
  int64_t compact = 1;
  for (size_t i = tensor.dims.size(); i-- > 0;) {
    out->strides[i] = compact;
    compact *= tensor.dims[i];
  }
  out->owner = tensor.owner;
  out->managed.tensor = {tensor.data,
                         {dlpack::kCpu, 0},
                         static_cast<int32_t>(tensor.dims.size()),
                         to_dlpack(tensor.dtype),
                         out->dims.data(),
                         out->strides.data(),
                         0};
  out->managed.context = out.get();
  out->managed.deleter = [](DLManagedTensor* self) { delete static_cast<Export*>(self->context); };
  return out;
}

std::string shape_text(const ds_tensor& tensor) {
  return dtype_name(tensor.dtype) + Shape(std::vector<Dim>(tensor.dims.begin(), tensor.dims.end())).text();
}

}  // namespace

std::unique_ptr<ds_tensor> own_tensor(DType dtype, std::span<const int64_t> dims) {
  constexpr size_t kAlign = 64;
  auto tensor = std::make_unique<ds_tensor>();
  tensor->dtype = dtype;
  set_shape(*tensor, dims);
  size_t bytes = (tensor->bytes() + kAlign) / kAlign * kAlign;
  void* data = std::aligned_alloc(kAlign, bytes);
  if (!data) raise(DS_ERROR_OUT_OF_MEMORY, "the system refuses {} bytes for a tensor", bytes);
  tensor->owner = std::shared_ptr<void>(data, &std::free);
  std::memset(data, 0, bytes);
  tensor->data = data;
  return tensor;
}

}  // namespace ds

ds_status ds_tensor_create(ds_dtype dtype, const int64_t* dims, size_t dims_count, void* data,
                           ds_tensor** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    ds::require(ds::known(dtype), "dtype must be one of ds_dtype but NONE, got {}", static_cast<int>(dtype));
    ds::need_array(dims, dims_count, "dims");
    if (!data) {
      *out = ds::own_tensor(dtype, {dims, dims_count}).release();
      return;
    }
    auto tensor = std::make_unique<ds_tensor>();
    tensor->dtype = dtype;
    ds::set_shape(*tensor, {dims, dims_count});
    tensor->data = data;
    *out = tensor.release();
  });
}

ds_status ds_tensor_from_dlpack(struct DLManagedTensor* managed, ds_tensor** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    const ds::dlpack::Tensor& view = ds::need(managed, "managed").tensor;
    if (view.device.kind != ds::dlpack::kCpu) {
      ds::raise(DS_ERROR_UNSUPPORTED, "tensor must be in host memory (device 1), got device {}",
                view.device.kind);
    }
    ds::require(view.rank >= 0 && (view.rank == 0 || view.shape), "tensor must have a shape, got rank {}",
                ds::RankNumber(view.rank));
    auto tensor = std::make_unique<ds_tensor>();
    tensor->dtype = ds::from_dlpack(view.type);
    ds::set_shape(*tensor, {view.shape, static_cast<size_t>(view.rank)});
    ds::check_compact(view);
    ds::require(view.data || tensor->numel == 0, "tensor data must not be NULL with {} elements",
                tensor->numel);
    tensor->data = static_cast<char*>(view.data) + view.byte_offset;
    auto guard = std::make_shared<ds::Import>();
    guard->managed = managed;  // from here nothing throws: on an error the caller keeps the tensor
    tensor->owner = std::move(guard);
    *out = tensor.release();
  });
}

ds_status ds_tensor_to_dlpack(ds_tensor* tensor, struct DLManagedTensor** out) {
  return ds::boundary([&] {
    ds::need(out, "out") = nullptr;
    *out = &ds::make_export(ds::need(tensor, "tensor")).release()->managed;
  });
}

ds_status ds_tensor_info(const ds_tensor* tensor, ds_dtype* out_dtype, int64_t* out_dims, size_t dims_size,
                         size_t* out_dims_count, void** out_data) {
  return ds::boundary([&] {
    const ds_tensor& t = ds::need(tensor, "tensor");
    ds::require(out_dims || dims_size == 0, "out_dims must not be NULL with dims_size {}", dims_size);
    if (out_dtype) *out_dtype = t.dtype;
    for (size_t i = 0; i < std::min(dims_size, t.dims.size()); ++i) out_dims[i] = t.dims[i];
    if (out_dims_count) *out_dims_count = t.dims.size();
    if (out_data) *out_data = t.data;
  });
}

ds_status ds_tensor_copy(ds_tensor* to, const ds_tensor* from) {
  return ds::boundary([&] {
    ds_tensor& target = ds::need(to, "to");
    const ds_tensor& source = ds::need(from, "from");
    ds::require(target.dtype == source.dtype && target.dims == source.dims, "to is {}, from is {}",
                ds::shape_text(target), ds::shape_text(source));
    if (target.bytes() > 0) std::memmove(target.data, source.data, target.bytes());
  });
}

void ds_tensor_destroy(ds_tensor* tensor) { ds::destroy(tensor); }
