#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "comm/communicator.h"

namespace ds {

// Some rows of a table: their numbers, ascending, and `width` elements of each, one row behind the other.
struct SparseRows {
  std::vector<int64_t> rows;
  std::vector<float> values;
};

// The sum over ranks of tables of which each rank gives the rows that are not zero: the rows that any rank
// gives, in order, as f32. The same bits as all_reduce of the whole tables, whose other rows are zero.
//   rows    numbers of this rank's rows, i32 or i64 as index says, strictly ascending, `count` of them
//   values  count x width elements, f32 or bf16
//   bound   most rows that a rank may give, the same on all ranks; more of any rank, or rows out of order,
//           are DS_ERROR_INVALID_ARGUMENT on all ranks, which leaves the group usable
// Received: (W-1) counts, and count (index + width elements) of every other rank. Result and received rows
// take memory of the caller's thread, at most W x bound rows twice.
SparseRows sparse_all_reduce(Communicator& comm, const void* rows, DType index, const void* values,
                             DType wire, size_t count, size_t width, size_t bound, std::string_view label,
                             ReduceOp op = ReduceOp::sum);

}  // namespace ds
