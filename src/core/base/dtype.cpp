#include "core/base/dtype.h"

#include <array>

#include "core/base/error.h"

namespace ds {
namespace {

// The name of an element type and its size in bytes.
struct Row {
  DType dtype;
  const char* name;
  int64_t size;
};
constexpr std::array<Row, 7> kRows{{{DS_DTYPE_F32, "f32", 4},
                                    {DS_DTYPE_BF16, "bf16", 2},
                                    {DS_DTYPE_F16, "f16", 2},
                                    {DS_DTYPE_F64, "f64", 8},
                                    {DS_DTYPE_I32, "i32", 4},
                                    {DS_DTYPE_I64, "i64", 8},
                                    {DS_DTYPE_U8, "u8", 1}}};

const Row& row(DType dtype) {
  for (const Row& r : kRows) {
    if (r.dtype == dtype) return r;
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "dtype must be a ds_dtype from 1 to 7, got {}",
        static_cast<int>(dtype));
}

}  // namespace

int64_t size_of(DType dtype) { return row(dtype).size; }

const char* dtype_name(DType dtype) { return row(dtype).name; }

DType parse_dtype(std::string_view name) {
  for (const Row& r : kRows) {
    if (name == r.name) return r.dtype;
  }
  raise(DS_ERROR_INVALID_ARGUMENT, "dtype must be one of f32 bf16 f16 f64 i32 i64 u8, got '{}'",
        name);
}

}  // namespace ds
