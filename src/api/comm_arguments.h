#pragma once
#include <cstdint>

#include "api/boundary.h"
#include "api/handles.h"
#include "comm/communicator.h"

// This header has argument checks that several calls of a comm share.
namespace ds {

// Returns the communicator of a handle; throws as need() does.
inline Communicator& use(ds_comm* comm) { return *need(comm, "comm").comm; }

// Checks a type and an operation. They come from C callers, so they may have any value.
inline void check_types(ds_dtype dtype, ds_reduce_op op) {
  require(dtype >= DS_DTYPE_F32 && dtype <= DS_DTYPE_U8,
          "dtype must be f32, bf16, f16, f64, i32, i64 or u8, got {}", static_cast<int>(dtype));
  require(op >= DS_REDUCE_OP_SUM && op <= DS_REDUCE_OP_MIN,
          "op must be sum, mean, max or min, got {}", static_cast<int>(op));
}

// Checks the arguments of a reduction (type, operation, buffers of `count` elements) and returns
// the operation. `takes` is false on ranks that receive no result, which may pass NULL as `out`.
inline ReduceOp check_reduced(const void* in, size_t count, ds_dtype dtype, ds_reduce_op op,
                              const void* out, bool takes = true) {
  check_types(dtype, op);
  require(in != nullptr || count == 0, "in must not be NULL with count {}", count);
  require(out != nullptr || count == 0 || !takes, "out must not be NULL with count {}", count);
  return static_cast<ReduceOp>(op);
}

// Throws unless the root of a collective is a rank of the group.
inline void check_root(const Communicator& group, int32_t root) {
  require(root >= 0 && root < group.size(), "root must be 0 to {}, got {}", group.size() - 1, root);
}

}  // namespace ds
