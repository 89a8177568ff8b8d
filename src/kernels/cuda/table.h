#pragma once
#include <cstdint>

#include "core/device/scalars.h"
#include "kernels/cuda/operand.h"

namespace ds::cuda {

// Rows by number: y[r] = w[ids[r]], in units of 16 or 2 bytes; a number that is no row of w gives
// 0.
struct LookupArgs {
  const void* w;
  const int32_t* ids;
  void* y;
  int64_t rows, units;  // of a row
  int64_t words;        // rows of w
  int64_t unit;         // bytes
};

struct EmbeddingDwArgs {
  Operand dy, dw;
  const int32_t* ids;
  int64_t rows, width, words;
  int64_t padding;
};
constexpr uint32_t kSliceThreads = 256;  // columns of a block
constexpr int64_t kSliceWords = 32;      // words of a block
constexpr int kIdsOfThread = 4;          // read at a time
constexpr int kScanned = static_cast<int>(kSliceThreads) * kIdsOfThread;
constexpr int kListed = kScanned + 256;  // rows of its words that a block has listed at most

struct PositionDwArgs {
  Operand dy, dw;
  int64_t rows, width, places, seq;
};

struct PackArgs {
  const int32_t* ids;
  int32_t* numbers;
  uint8_t* named;  // whether a word is among ids
  const StepScalars* scalars;
  int64_t count, words, room;
};
constexpr uint32_t kPackThreads = 256;

struct SumRowsArgs {
  Operand rows, y;
  const int32_t* numbers;
  int64_t count, width, room, ranks, first;
  uint16_t place[kMostSummed];  // of each rank
};

}  // namespace ds::cuda
