#ifndef DS_TESTS_API_DLPACK_H
#define DS_TESTS_API_DLPACK_H

#include <stdint.h>

/* The declarations of a host's <dlpack/dlpack.h>. */
typedef struct {
  void* data;
  struct {
    int32_t kind, index;
  } device;
  int32_t rank;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } type;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} dl_tensor;
struct DLManagedTensor {
  dl_tensor tensor;
  void* context;
  void (*deleter)(struct DLManagedTensor* self);
};

struct DLManagedTensorVersioned {
  struct {
    uint32_t major, minor;
  } version;
  void* context;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  dl_tensor tensor;
};

#endif
