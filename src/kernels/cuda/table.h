#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The argument of lookup: y[r] = w[ids[r]], copied in units of 16 or 2 bytes. If ids[r] is not a
// row of w, y[r] is zeros.
struct LookupArgs {
  const void* w;
  const int32_t* ids;
  void* y;
  // `units` is the number of units of a row.
  int64_t rows, units;
  // The number of rows of w.
  int64_t words;
  // The number of bytes of a unit.
  int64_t unit;
};

// The argument of embedding_dw: dw[w] = the sum of the rows of dy whose id is w, in row order. The
// id `padding` is ignored.
struct EmbeddingDwArgs {
  Operand dy, dw;
  const int32_t* ids;
  int64_t rows, width, words;
  int64_t padding;
};
// The number of columns of a block.
constexpr uint32_t kSliceThreads = 256;
// The number of words of a block.
constexpr int64_t kSliceWords = 32;
// The number of ids that one thread reads at a time, and that all threads of a block read together.
constexpr int kIdsOfThread = 4;
constexpr int kScanned = static_cast<int>(kSliceThreads) * kIdsOfThread;
// The capacity of the list of rows whose id is a word of the block. The rows are added and the list
// is emptied when it might not have room for the next kScanned ids.
constexpr int kListed = kScanned + 256;

// The argument of position_dw: dw[p] = the sum of the rows of dy at position p of their sequence.
struct PositionDwArgs {
  Operand dy, dw;
  int64_t rows, width, places, seq;
};

// The argument of mark_ids and list_ids: numbers = the words that occur in ids, ascending; the
// remaining of the `room` elements become kNoRow.
struct PackArgs {
  const int32_t* ids;
  int32_t* numbers;
  // [words]: whether a word occurs in ids.
  uint8_t* named;
  const StepScalars* scalars;
  int64_t count, words, room;
};
constexpr uint32_t kPackThreads = 256;

// The argument of sum_rows: y = the sum over ranks of packed rows; a rank that has not sent a row
// adds 0. y is the part of the table from element `first` on.
struct SumRowsArgs {
  Operand rows, y;
  const int32_t* numbers;
  int64_t count, width, room, ranks, first;
  // place[r] is the position of rank r's rows among the gathered rows of all ranks (RankOrder).
  uint16_t place[kMostSummed];
};

}  // namespace ds::cuda
