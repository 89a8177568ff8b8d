/* Tests tensors, and DLPack in both directions. */
#include <string.h>

#include "dlpack.h"
#include "support.h"

static void count_release(struct DLManagedTensor* self) { ++*(int*)self->context; }

static void own_and_lent(void) {
  const int64_t dims[] = {2, 3}, other[] = {3, 2};
  float memory[6] = {1, 2, 3, 4, 5, 6};
  ds_tensor *own = NULL, *lent = NULL, *turned = NULL;
  int64_t out_dims[2] = {0, 0};
  size_t rank = 0;
  void* data = NULL;
  ds_dtype dtype = DS_DTYPE_NONE;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, NULL, NULL, &own), "own memory");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, memory, NULL, &lent), "lent memory");
  check_ok(ds_tensor_info(own, &dtype, out_dims, NULL, 2, &rank, NULL, &data), "info");
  check(dtype == DS_DTYPE_F32 && rank == 2 && out_dims[0] == 2 && out_dims[1] == 3,
        "type and shape");
  check(data != NULL && data != memory && ((float*)data)[5] == 0.0f, "zero-filled");
  check_ok(ds_tensor_copy(own, lent, NULL), "copy");
  check(memcmp(data, memory, sizeof memory) == 0, "copied");
  out_dims[1] = -5;
  check_ok(ds_tensor_info(lent, NULL, out_dims, NULL, 1, NULL, NULL, &data), "some of the info");
  check(out_dims[1] == -5 && data == memory, "only what fits is written");
  check_ok(ds_tensor_create(DS_DTYPE_F32, other, 2, NULL, NULL, NULL, &turned), "another shape");
  check_error(ds_tensor_copy(turned, own, NULL), DS_ERROR_INVALID_ARGUMENT,
              "to and from must have one type and shape, got f32[3,2] and f32[2,3]");
  ds_tensor_destroy(turned);
  check_error(ds_tensor_create(DS_DTYPE_NONE, dims, 2, NULL, NULL, NULL, &turned),
              DS_ERROR_INVALID_ARGUMENT, "dtype must be");
  check(turned == NULL, "out is NULL after an error");
  ds_tensor_destroy(own);
  ds_tensor_destroy(lent);
}

/* Proves {tensor.from_dlpack.owner}. */
static void from_dlpack(void) {
  int32_t memory[4] = {5, 6, 7, 8};
  int64_t shape[] = {3};
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
  check_ok(ds_tensor_from_dlpack(&managed, NULL, NULL, &tensor), "import");
  check_ok(ds_tensor_info(tensor, NULL, NULL, NULL, 0, NULL, NULL, &data), "info");
  check(data == memory + 1 && released == 0, "no copy, byte_offset is added");
  ds_tensor_destroy(tensor);
  check(released == 1, "the deleter ran once");
  managed.tensor.device.kind = 2;
  check_error(ds_tensor_from_dlpack(&managed, NULL, NULL, &tensor), DS_ERROR_UNSUPPORTED,
              "host memory (device 1), got device 2");
  managed.tensor.device.kind = 1;
  managed.tensor.type.bits = 24;
  check_error(ds_tensor_from_dlpack(&managed, NULL, NULL, &tensor), DS_ERROR_UNSUPPORTED,
              "24 bits");
  check(released == 1, "on an error the caller keeps it");
}

/* Proves {tensor.to_dlpack.alive}. */
static void to_dlpack(void) {
  const int64_t dims[] = {2, 2};
  ds_tensor *tensor = NULL, *back = NULL;
  struct DLManagedTensor* managed = NULL;
  void *data = NULL, *same = NULL;
  check_ok(ds_tensor_create(DS_DTYPE_BF16, dims, 2, NULL, NULL, NULL, &tensor), "tensor");
  check_ok(ds_tensor_info(tensor, NULL, NULL, NULL, 0, NULL, NULL, &data), "info");
  check_ok(ds_tensor_to_dlpack(tensor, &managed, NULL), "export");
  ds_tensor_destroy(tensor);
  /* The export keeps the memory alive. */
  ((uint16_t*)data)[3] = 0x3f80;
  check(managed->tensor.type.code == 4 && managed->tensor.type.bits == 16 &&
            managed->tensor.rank == 2,
        "bf16");
  check(managed->tensor.strides[0] == 2 && managed->tensor.strides[1] == 1, "strides");
  check_ok(ds_tensor_from_dlpack(managed, NULL, NULL, &back), "round trip");
  check_ok(ds_tensor_info(back, NULL, NULL, NULL, 0, NULL, NULL, &same), "info");
  check(same == data && ((uint16_t*)same)[3] == 0x3f80, "the same memory");
  ds_tensor_destroy(back);
}

static void count_release_versioned(struct DLManagedTensorVersioned* self) {
  ++*(int*)self->context;
}

static float value_at(const ds_tensor* tensor, int64_t i, int64_t j) {
  int64_t strides[2] = {0, 0};
  void* data = NULL;
  check_ok(ds_tensor_info(tensor, NULL, NULL, strides, 2, NULL, NULL, &data), "strides");
  return ((const float*)data)[i * strides[0] + j * strides[1]];
}

/* Copies between layouts, compared with a plain loop over indices. */
static void strides(void) {
  const int64_t dims[] = {2, 3}, turned[] = {1, 2}, back[] = {-3, -1}, same[] = {0, 1};
  float memory[6] = {1, 2, 3, 4, 5, 6}, other[6] = {0, 0, 0, 0, 0, 0};
  ds_tensor *compact = NULL, *column = NULL, *reversed = NULL, *repeated = NULL;
  const char* device = NULL;
  int64_t out_strides[2] = {0, 0};
  int64_t i, j;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, memory, NULL, &compact), "compact");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, turned, other, NULL, &column), "column-major");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, back, memory + 5, NULL, &reversed),
           "negative strides");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, same, memory, NULL, &repeated), "stride 0");
  check_ok(ds_tensor_info(column, NULL, NULL, out_strides, 2, NULL, &device, NULL), "info");
  check(out_strides[0] == 1 && out_strides[1] == 2 && strcmp(device, "cpu") == 0,
        "strides and device");
  check_ok(ds_tensor_copy(column, compact, NULL), "to columns");
  for (i = 0; i < 2; ++i)
    for (j = 0; j < 3; ++j)
      check(value_at(column, i, j) == (float)(3 * i + j + 1), "an element of columns");
  check(other[1] == 4, "in column-major order");
  check_ok(ds_tensor_copy(column, reversed, NULL), "from the end");
  for (i = 0; i < 2; ++i)
    for (j = 0; j < 3; ++j)
      check(value_at(column, i, j) == (float)(6 - 3 * i - j), "an element from the end");
  check_ok(ds_tensor_copy(column, repeated, NULL), "one row twice");
  check(value_at(column, 0, 2) == 3 && value_at(column, 1, 2) == 3, "the row appears twice");
  check_error(ds_tensor_copy(repeated, compact, NULL), DS_ERROR_INVALID_ARGUMENT,
              "stride 0 for 2 elements of dimension 0");
  ds_tensor_destroy(repeated);
  check_error(ds_tensor_create(DS_DTYPE_F32, dims, 2, turned, NULL, NULL, &repeated),
              DS_ERROR_INVALID_ARGUMENT, "strides must be NULL without data");
  {
    const int64_t far_away[] = {INT64_MAX / 2, 1}, farther[] = {INT64_MIN, 1};
    check_error(ds_tensor_create(DS_DTYPE_F32, dims, 2, far_away, memory, NULL, &repeated),
                DS_ERROR_INVALID_ARGUMENT, "strides[0] =");
    check_error(ds_tensor_create(DS_DTYPE_F32, dims, 2, farther, memory, NULL, &repeated),
                DS_ERROR_INVALID_ARGUMENT, "strides[0] =");
  }
  ds_tensor_destroy(compact);
  ds_tensor_destroy(column);
  ds_tensor_destroy(reversed);
}

/* Copies to random layouts, most of which have one place for several elements and are refused. */
static void random_overlaps(void) {
  static float from[64], memory[256];
  uint32_t dice = 777;
  int round, refused = 0;
  for (round = 0; round < 400; ++round) {
    int64_t dims[3], steps[3], i, j, k, shared = 0;
    char taken[256];
    ds_tensor *a = NULL, *b = NULL;
    memset(taken, 0, sizeof taken);
    for (i = 0; i < 3; ++i) {
      dims[i] = 1 + ((dice = dice * 1664525u + 1013904223u) >> 16) % 4;
      steps[i] = 1 + ((dice = dice * 1664525u + 1013904223u) >> 16) % 20;
    }
    for (i = 0; i < dims[0]; ++i)
      for (j = 0; j < dims[1]; ++j)
        for (k = 0; k < dims[2]; ++k)
          shared += taken[i * steps[0] + j * steps[1] + k * steps[2]]++ != 0;
    check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 3, NULL, from, NULL, &a), "compact");
    check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 3, steps, memory, NULL, &b), "strided");
    if (shared) {
      check_error(ds_tensor_copy(b, a, NULL), DS_ERROR_INVALID_ARGUMENT,
                  "to must have a place for each element");
      ++refused;
    } else {
      check_ok(ds_tensor_copy(b, a, NULL), "copy");
    }
    check_ok(ds_tensor_copy(a, b, NULL), "a copy from shared places");
    ds_tensor_destroy(a);
    ds_tensor_destroy(b);
  }
  check(refused > 50 && refused < 350, "layouts of both kinds are drawn");
}

/* Copies between random layouts of up to four dimensions from one block of memory to another; only
 * the elements may change. */
static void random_layouts(void) {
  enum { ROOM = 4096 };
  static float from[ROOM], to[ROOM];
  uint32_t dice = 12345;
  int round;
  for (round = 0; round < 500; ++round) {
    int64_t dims[4], strides_of[2][4], offset[2] = {0, 0};
    ds_tensor *a = NULL, *b = NULL;
    int64_t index[4] = {0, 0, 0, 0}, numel = 1, seen = 0;
    size_t rank, d, side, e;
    rank = (dice = dice * 1664525u + 1013904223u) >> 16 & 3;
    for (d = 0; d <= rank; ++d) {
      dims[d] = (int64_t)((dice = dice * 1664525u + 1013904223u) >> 16) % 5;
      numel *= dims[d];
    }
    for (side = 0; side < 2; ++side) {
      int64_t step = 1;
      uint32_t order = (dice = dice * 1664525u + 1013904223u) >> 16;
      /* The dimensions are laid out in one of two orders, each with a sign and perhaps a gap. */
      for (d = 0; d <= rank; ++d) {
        size_t at = order % 2 ? d : rank - d;
        uint32_t draw = (dice = dice * 1664525u + 1013904223u) >> 16;
        strides_of[side][at] = draw % 3 == 0 ? -step : step;
        if (strides_of[side][at] < 0 && dims[at] > 0) offset[side] += step * (dims[at] - 1);
        step *= (dims[at] > 0 ? dims[at] : 1) + (int64_t)(draw / 3 % 2);
      }
      check(step < ROOM, "the layout fits");
    }
    for (e = 0; e < ROOM; ++e) from[e] = (float)(e + 1), to[e] = -1;
    check_ok(
        ds_tensor_create(DS_DTYPE_F32, dims, rank + 1, strides_of[0], from + offset[0], NULL, &a),
        "a");
    check_ok(
        ds_tensor_create(DS_DTYPE_F32, dims, rank + 1, strides_of[1], to + offset[1], NULL, &b),
        "b");
    check_ok(ds_tensor_copy(b, a, NULL), "copy");
    while (seen < numel) {
      int64_t x = offset[0], y = offset[1];
      for (d = 0; d <= rank; ++d)
        x += index[d] * strides_of[0][d], y += index[d] * strides_of[1][d];
      check(to[y] == from[x], "an element of a random layout");
      to[y] = -1;
      ++seen;
      for (d = rank + 1; d-- > 0;) {
        if (++index[d] < dims[d]) break;
        index[d] = 0;
      }
    }
    for (e = 0; e < ROOM; ++e) check(to[e] == -1, "nothing else was written");
    ds_tensor_destroy(a);
    ds_tensor_destroy(b);
  }
}

/* Proves {tensor.from_dlpack.readonly}, {tensor.to_dlpack.readonly} and
 * {tensor.to_dlpack.alive}. */
static void versioned(void) {
  float memory[6] = {1, 2, 3, 4, 5, 6};
  int64_t shape[] = {2, 2}, strides_of[] = {3, 1};
  const int64_t dims[] = {2, 2};
  int released = 0;
  ds_tensor *tensor = NULL, *copy = NULL;
  struct DLManagedTensorVersioned managed, *out = NULL;
  struct DLManagedTensor* old = NULL;
  memset(&managed, 0, sizeof managed);
  managed.version.major = 1;
  managed.context = &released;
  managed.deleter = count_release_versioned;
  /* The flag 1 means read-only. */
  managed.flags = 1;
  managed.tensor.data = memory;
  managed.tensor.device.kind = 1;
  managed.tensor.rank = 2;
  managed.tensor.type.code = 2;
  managed.tensor.type.bits = 32;
  managed.tensor.type.lanes = 1;
  managed.tensor.shape = shape;
  managed.tensor.strides = strides_of;
  check_error(ds_tensor_from_dlpack(NULL, NULL, NULL, &tensor), DS_ERROR_INVALID_ARGUMENT,
              "got none");
  managed.version.major = 2;
  check_error(ds_tensor_from_dlpack(NULL, &managed, NULL, &tensor), DS_ERROR_UNSUPPORTED,
              "got 2.0");
  managed.version.major = 1;
  check_ok(ds_tensor_from_dlpack(NULL, &managed, NULL, &tensor), "import");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, NULL, NULL, &copy), "room");
  check_ok(ds_tensor_copy(copy, tensor, NULL), "copy of a strided tensor");
  check(value_at(copy, 1, 0) == 4 && value_at(copy, 1, 1) == 5, "its second row");
  check_error(ds_tensor_copy(tensor, copy, NULL), DS_ERROR_INVALID_ARGUMENT, "to must be writable");
  check_error(ds_tensor_to_dlpack(tensor, &old, NULL), DS_ERROR_INVALID_ARGUMENT,
              "tensor is read-only, which only out_versioned can express");
  check_error(ds_tensor_to_dlpack(tensor, NULL, NULL), DS_ERROR_INVALID_ARGUMENT, "got none");
  check_ok(ds_tensor_to_dlpack(tensor, NULL, &out), "export");
  check(out->version.major == 1 && out->flags == 1 && out->tensor.strides[0] == 3,
        "read-only and strided");
  check(out->tensor.data == memory, "the same memory");
  ds_tensor_destroy(tensor);
  check(released == 0, "the export keeps the memory");
  out->deleter(out);
  check(released == 1, "the deleter ran once");
  ds_tensor_destroy(copy);
}

/* Proves {tensor.copy.overlap}: a block is moved by one element, in both directions. */
static void overlap(void) {
  enum { NUMEL = 1000 };
  static float memory[NUMEL + 1];
  const int64_t dims[] = {NUMEL};
  ds_tensor *low = NULL, *high = NULL;
  int i;
  for (i = 0; i <= NUMEL; ++i) memory[i] = (float)i;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, memory, NULL, &low), "from 0");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 1, NULL, memory + 1, NULL, &high), "from 1");
  check_ok(ds_tensor_copy(low, high, NULL), "down");
  for (i = 0; i < NUMEL; ++i) check(memory[i] == (float)(i + 1), "the element above");
  check_ok(ds_tensor_copy(high, low, NULL), "up");
  for (i = 0; i < NUMEL; ++i) check(memory[i + 1] == (float)(i + 1), "the element below");
  ds_tensor_destroy(low);
  ds_tensor_destroy(high);
}

/* An empty tensor can be copied. */
static void empty(void) {
  const int64_t dims[] = {3, 0};
  ds_tensor *a = NULL, *b = NULL;
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, NULL, NULL, &a), "empty");
  check_ok(ds_tensor_create(DS_DTYPE_F32, dims, 2, NULL, NULL, NULL, &b), "empty");
  check_ok(ds_tensor_copy(a, b, NULL), "a copy of nothing");
  ds_tensor_destroy(a);
  ds_tensor_destroy(b);
}

int main(void) {
  empty();
  overlap();
  strides();
  random_layouts();
  random_overlaps();
  versioned();
  own_and_lent();
  from_dlpack();
  to_dlpack();
  return 0;
}
