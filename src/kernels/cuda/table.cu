// Operations on tables whose rows are selected by ids, with the same bits as the CPU's kernels.
//
// `embedding_dw` adds up, for each word, the rows of dy whose id is that word, in row order. A
// block has 32 words and 256 columns. It reads all ids, 1,024 at a time, and appends the rows whose
// id is one of its words to a list, in order: a thread computes its position in the list from
// ballots, as the number of hits before it. When the list might overflow, or the ids end, every
// thread adds the listed rows to its column of the sums in shared memory. dy is read once and dw
// written once; the ids are read once by every block, from the device's cache.
#include "core/program/rows.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/row-inl.h"
#include "kernels/cuda/table.h"

namespace ds::cuda {
namespace {

// Returns the number of threads of the block with a lower index whose `mine` is true; sets *all to
// the number of all threads whose `mine` is true. `room` is shared memory of 8 numbers, which is in
// use until the block's next barrier.
DS_DEVICE unsigned rank_in_block(bool mine, unsigned* room, unsigned* all) {
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  const unsigned votes = __ballot_sync(kAll, mine);
  if (lane == 0) room[warp] = static_cast<unsigned>(__popc(votes));
  __syncthreads();
  unsigned before = static_cast<unsigned>(__popc(votes & ((1u << lane) - 1))), total = 0;
  for (unsigned w = 0; w < warps; ++w) {
    if (w < warp) before += room[w];
    total += room[w];
  }
  *all = total;
  return before;
}

}  // namespace

// A thread copies one unit of 16 or 2 bytes.
DS_LOOP_KERNEL(lookup, LookupArgs) {
  const int64_t i = thread_number();
  if (i >= a.rows * a.units) return;
  const int64_t id = a.ids[i / a.units], from = id * a.units + i % a.units;
  const bool there = id >= 0 && id < a.words;
  if (a.unit == 16) {
    static_cast<uint4*>(a.y)[i] =
        there ? static_cast<const uint4*>(a.w)[from] : make_uint4(0, 0, 0, 0);
  } else {
    static_cast<uint16_t*>(a.y)[i] = there ? static_cast<const uint16_t*>(a.w)[from] : uint16_t{0};
  }
}

DS_BLOCK_KERNEL(embedding_dw, EmbeddingDwArgs, kSliceThreads) {
  // Shared memory holds the sums [word][column], then the rows of the list and their words.
  DS_SHARED(float, sums);
  auto* list_row = reinterpret_cast<int32_t*>(sums + kSliceWords * kSliceThreads);
  auto* list_word = list_row + kListed;
  // The counts of the warps, in two buffers that alternate: slower warps may still read the counts
  // of the previous turn. This saves a barrier.
  auto* room = reinterpret_cast<unsigned*>(list_word + kListed);
  const unsigned lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp,
                 warps = kSliceThreads / kWarp;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kSliceWords;
  const int64_t column = static_cast<int64_t>(blockIdx.y) * kSliceThreads + threadIdx.x;
  for (int64_t w = 0; w < kSliceWords; ++w) sums[w * kSliceThreads + threadIdx.x] = 0;
  int held = 0;
  for (int64_t begin = 0; begin < a.rows; begin += kScanned) {
    const int64_t row = begin + kIdsOfThread * static_cast<int64_t>(threadIdx.x);
    int64_t id[kIdsOfThread];
    unsigned before = 0, all = 0;
#pragma unroll
    for (int j = 0; j < kIdsOfThread; ++j) id[j] = row + j < a.rows ? a.ids[row + j] : -1;
#pragma unroll
    for (int j = 0; j < kIdsOfThread; ++j) {
      if (id[j] < first || id[j] >= first + kSliceWords || id[j] == a.padding) id[j] = -1;
      const unsigned votes = __ballot_sync(kAll, id[j] >= 0);
      before += static_cast<unsigned>(__popc(votes & ((1u << lane) - 1)));
      all += static_cast<unsigned>(__popc(votes));
    }
    unsigned* const counts = room + (begin / kScanned % 2 == 0 ? 0 : warps);
    if (lane == 0) counts[warp] = all;
    __syncthreads();
    int found = 0;
    for (unsigned w = 0; w < warps; ++w) {
      if (w < warp) before += counts[w];
      found += static_cast<int>(counts[w]);
    }
    int at = held + static_cast<int>(before);
#pragma unroll
    for (int j = 0; j < kIdsOfThread; ++j) {
      if (id[j] < 0) continue;
      list_row[at] = static_cast<int32_t>(row + j);
      list_word[at] = static_cast<int32_t>(id[j] - first);
      ++at;
    }
    held += found;
    const bool last = begin + kScanned >= a.rows;
    // The next turn may append up to kScanned rows.
    if (held == 0 || (!last && held <= kListed - kScanned)) continue;
    __syncthreads();
    const int count = column < a.width ? held : 0;
    with_type(a.dy.dtype, [&](auto given) {
      // The loads of this many rows are in flight at once, except for f16, where each load is
      // widened before the next.
      constexpr int kAhead = 8;
      const auto of_row = [&](int k) {
        return element<decltype(given)::value>(a.dy, list_row[k] * a.width + column);
      };
      int k = 0;
#pragma unroll 1
      for (; k + kAhead <= count; k += kAhead) {
        float x[kAhead];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) x[j] = of_row(k + j);
#pragma unroll
        for (int j = 0; j < kAhead; ++j)
          sums[list_word[k + j] * kSliceThreads + threadIdx.x] += x[j];
      }
#pragma unroll 1
      for (; k < count; ++k) sums[list_word[k] * kSliceThreads + threadIdx.x] += of_row(k);
    });
    held = 0;
  }
  if (column >= a.width) return;
  for (int64_t w = 0; w < kSliceWords && first + w < a.words; ++w)
    put(a.dw, (first + w) * a.width + column, sums[w * kSliceThreads + threadIdx.x]);
}

// dw[p] = the sum of the rows of dy at position p of their sequence, in order.
DS_LOOP_KERNEL(position_dw, PositionDwArgs) {
  const int64_t i = thread_number();
  if (i >= a.places * a.width) return;
  const int64_t place = i / a.width, column = i % a.width;
  float sum = 0;
  for (int64_t r = place; place < a.seq && r < a.rows; r += a.seq)
    sum += get(a.dy, r * a.width + column);
  put(a.dw, i, sum);
}

// Marks the words that occur in ids. Several threads may write a 1 to the same byte.
DS_LOOP_KERNEL(mark_ids, PackArgs) {
  const int64_t i = thread_number();
  if (i < a.count && a.scalars->absent == 0) a.named[a.ids[i]] = 1;
}
// One block writes the marked words in ascending order, then fills up with kNoRow.
DS_BLOCK_KERNEL(list_ids, PackArgs, kPackThreads) {
  DS_SHARED(unsigned, room);
  int64_t written = 0;
  for (int64_t begin = 0; begin < a.words; begin += kPackThreads) {
    const int64_t v = begin + threadIdx.x;
    const bool mine = v < a.words && a.named[v] != 0;
    unsigned count;
    const unsigned at = rank_in_block(mine, room, &count);
    if (mine && written + at < a.room) a.numbers[written + at] = static_cast<int32_t>(v);
    written += count;
    __syncthreads();  // `room` may be written again
  }
  for (int64_t k = written + threadIdx.x; k < a.room; k += kPackThreads) a.numbers[k] = kNoRow;
}

// Adds up packed rows over ranks. The row numbers of a rank are in ascending order, so a row is
// found by binary search; a rank that did not send the row adds 0.
DS_LOOP_KERNEL(sum_rows, SumRowsArgs) {
  const int64_t i = thread_number();
  if (i >= a.count) return;
  const int64_t row = (a.first + i) / a.width, column = (a.first + i) % a.width;
  const auto given = [&](int64_t r) {
    const int64_t base = static_cast<int64_t>(a.place[r]) * a.room;
    int64_t low = 0, high = a.room;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (a.numbers[base + middle] < row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    const bool there = low < a.room && a.numbers[base + low] == row;
    return there ? get(a.rows, (base + low) * a.width + column) : 0.0f;
  };
  put(a.y, i, sum_of_ranks(a.ranks, given));
}

}  // namespace ds::cuda
