#pragma once
#include <cstdint>

// The managed tensors of DLPack as the bytes of its public ABI: what a host's <dlpack/dlpack.h>
// declares. Private to this folder; ds.h only names the two structs.

namespace ds::dlpack {

inline constexpr int32_t kCpu = 1;         // device kind: host memory
inline constexpr int32_t kCuda = 2;        // device kind: an NVIDIA GPU, whose number is `index`
inline constexpr int32_t kExtension = 12;  // device kind: one that DLPack has no number for
inline constexpr uint32_t kMajor = 1, kMinor = 1;
inline constexpr uint64_t kReadOnly = 1;  // flag of a versioned tensor

// Kinds of numbers.
enum Code : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4 };

struct Device {
  int32_t kind;
  int32_t index;
};

struct Type {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;  // 1: no vectors
};

struct Tensor {
  void* data;
  Device device;
  int32_t rank;
  Type type;
  int64_t* shape;
  int64_t* strides;  // in elements; null: compact row-major
  uint64_t byte_offset;
};

}  // namespace ds::dlpack

// The owner calls deleter(this) once, or never when deleter is null.
struct DLManagedTensor {
  ds::dlpack::Tensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor* self);
};

// DLPack 1.x. One of another major version has only the first three members.
struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  ds::dlpack::Tensor tensor;
};

static_assert(sizeof(void*) != 8 || sizeof(DLManagedTensorVersioned) == 80);
static_assert(sizeof(void*) != 8 ||
              (sizeof(ds::dlpack::Tensor) == 48 && sizeof(DLManagedTensor) == 64));
