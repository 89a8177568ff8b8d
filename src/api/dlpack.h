#pragma once
#include <cstdint>

// This header declares the managed tensors of DLPack, with the layout of its public ABI. An
// application's <dlpack/dlpack.h> declares the same structs. These declarations are private to this
// folder; ds.h only declares the names of the two structs.

namespace ds::dlpack {

// Kinds of devices: host memory, an NVIDIA GPU, whose number is in Device::index, and a device for
// which DLPack has no kind.
inline constexpr int32_t kCpu = 1;
inline constexpr int32_t kCuda = 2;
inline constexpr int32_t kExtension = 12;
inline constexpr uint32_t kMajor = 1, kMinor = 1;
// A flag of a versioned tensor: its memory must not be written.
inline constexpr uint64_t kReadOnly = 1;

// Codes for kinds of elements.
enum Code : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4 };

// The device of a tensor's memory.
struct Device {
  int32_t kind;
  int32_t index;
};

// The element type of a tensor.
struct Type {
  uint8_t code;
  uint8_t bits;
  // Number of lanes of a vector element; 1 for a scalar.
  uint16_t lanes;
};

// A view of a tensor's memory. Its arrays belong to the managed tensor that contains it.
struct Tensor {
  void* data;
  Device device;
  int32_t rank;
  Type type;
  int64_t* shape;
  // Strides in elements, or null if the tensor is compact and row-major.
  int64_t* strides;
  uint64_t byte_offset;
};

}  // namespace ds::dlpack

// A tensor with the function that frees it. Whoever owns the struct calls deleter(self) once,
// unless deleter is null.
struct DLManagedTensor {
  ds::dlpack::Tensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor* self);
};

// The managed tensor of DLPack 1.x. With another major version, only the first three members are
// valid.
struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  ds::dlpack::Tensor tensor;
};

// The structs must have the ABI's sizes on 64-bit machines.
static_assert(sizeof(void*) != 8 || sizeof(DLManagedTensorVersioned) == 80);
static_assert(sizeof(void*) != 8 ||
              (sizeof(ds::dlpack::Tensor) == 48 && sizeof(DLManagedTensor) == 64));
