/* Tensors, and DLPack both ways. */
#include <string.h>

#include "support.h"

/* What <dlpack/dlpack.h> of a host declares. */
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

static void count_release(struct DLManagedTensor* self) { ++*(int*)self->context; }

static void own_and_lent(void) {
  const int64_t dims[] = {2, 3}, other[] = {3, 2};
  float memory[6] = {1, 2, 3, 4, 5, 6};
  ds_tensor *own = NULL, *lent = NULL, *turned = NULL;
  int64_t out_dims[2] = {0, 0};
  size_t rank = 0;
  void* data = NULL;
  ds_dtype dtype = DS_DTYPE_NONE;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, &own), "own memory");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, memory, &lent), "lent memory");
  check_ok(ds_tensor_info(own, &dtype, out_dims, 2, &rank, &data), "info");
  check(dtype == DS_DTYPE_F32 && rank == 2 && out_dims[0] == 2 && out_dims[1] == 3, "type and shape");
  check(data != NULL && data != memory && ((float*)data)[5] == 0.0f, "zero-filled");
  check_ok(ds_tensor_copy(own, lent), "copy");
  check(memcmp(data, memory, sizeof memory) == 0, "copied");
  out_dims[1] = -5;
  check_ok(ds_tensor_info(lent, NULL, out_dims, 1, NULL, &data), "some of the info");
  check(out_dims[1] == -5 && data == memory, "only what fits is written");
  check_ok(ds_tensor_create(DS_DTYPE_F32, other, 2, NULL, &turned), "another shape");
  check_error(ds_tensor_copy(turned, own), DS_ERROR_INVALID_ARGUMENT, "to is f32[3,2], from is f32[2,3]");
  ds_tensor_destroy(turned);
  check_error(ds_tensor_create(DS_DTYPE_NONE, dims, 2, NULL, &turned), DS_ERROR_INVALID_ARGUMENT,
              "dtype must be");
  check(turned == NULL, "out is NULL after an error");
  ds_tensor_destroy(own);
  ds_tensor_destroy(lent);
}

static void from_dlpack(void) {
  int32_t memory[4] = {5, 6, 7, 8};
  int64_t shape[] = {3}, strides[] = {1};
  int released = 0;
  void* data = NULL;
  ds_tensor* tensor = NULL;
  struct DLManagedTensor managed;
  memset(&managed, 0, sizeof managed);
  managed.tensor.data = memory;
  managed.tensor.device.kind = 1;
  managed.tensor.rank = 1;
  managed.tensor.type.bits = 32;
  managed.tensor.type.lanes = 1;
  managed.tensor.shape = shape;
  managed.tensor.byte_offset = sizeof memory[0];
  managed.context = &released;
  managed.deleter = count_release;
  check_ok(ds_tensor_from_dlpack(&managed, &tensor), "import");
  check_ok(ds_tensor_info(tensor, NULL, NULL, 0, NULL, &data), "info");
  check(data == memory + 1 && released == 0, "no copy, byte_offset is added");
  ds_tensor_destroy(tensor);
  check(released == 1, "the deleter ran once");
  managed.tensor.device.kind = 2;
  check_error(ds_tensor_from_dlpack(&managed, &tensor), DS_ERROR_UNSUPPORTED,
              "host memory (device 1), got device 2");
  managed.tensor.device.kind = 1;
  managed.tensor.strides = strides;
  strides[0] = 2;
  check_error(ds_tensor_from_dlpack(&managed, &tensor), DS_ERROR_UNSUPPORTED, "stride 0 must be 1, got 2");
  strides[0] = 1;
  managed.tensor.type.bits = 24;
  check_error(ds_tensor_from_dlpack(&managed, &tensor), DS_ERROR_UNSUPPORTED, "24 bits");
  check(released == 1, "on an error the caller keeps it");
}

static void to_dlpack(void) {
  const int64_t dims[] = {2, 2};
  ds_tensor *tensor = NULL, *back = NULL;
  struct DLManagedTensor* managed = NULL;
  void *data = NULL, *same = NULL;
  check_ok(ds_tensor_create(DS_DTYPE_BF16, dims, 2, NULL, &tensor), "tensor");
  check_ok(ds_tensor_info(tensor, NULL, NULL, 0, NULL, &data), "info");
  check_ok(ds_tensor_to_dlpack(tensor, &managed), "export");
  ds_tensor_destroy(tensor);
  ((uint16_t*)data)[3] = 0x3f80; /* the view keeps the memory */
  check(managed->tensor.type.code == 4 && managed->tensor.type.bits == 16 && managed->tensor.rank == 2,
        "bf16");
  check(managed->tensor.strides[0] == 2 && managed->tensor.strides[1] == 1, "strides");
  check_ok(ds_tensor_from_dlpack(managed, &back), "round trip");
  check_ok(ds_tensor_info(back, NULL, NULL, 0, NULL, &same), "info");
  check(same == data && ((uint16_t*)same)[3] == 0x3f80, "the same memory");
  ds_tensor_destroy(back);
}

int main(void) {
  own_and_lent();
  from_dlpack();
  to_dlpack();
  return 0;
}
