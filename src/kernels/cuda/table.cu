// Tables whose rows are named by ids, with the bits of the CPU's kernels.
//
// `embedding_dw` adds up, for each word, the rows of dy that name it, in row order. A block has 32
// words and 256 columns: it reads all ids by 1,024, lists those of its words in their order (a
// count before each thread's own, from ballots), and when the list may not hold more, or ids end,
// every thread adds the rows to its column of the sums in shared memory. dy is read once, dw
// written once; ids are read once for every 32 words, from the cache of the device.
#include "core/program/rows.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/row-inl.h"
#include "kernels/cuda/table.h"

namespace ds::cuda {
namespace {

// How many threads of the block with a lower number have `mine`; *all: how many have it. room: 8
// numbers, in use until the block meets again.
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
  DS_SHARED(float, sums);  // [word][column], then the list: rows and words of them
  auto* list_row = reinterpret_cast<int32_t*>(sums + kSliceWords * kSliceThreads);
  auto* list_word = list_row + kListed;
  // How many each warp has, of this turn and of the one before, which others may still read.
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
    if (held == 0 || (!last && held <= kListed - kScanned)) continue;
    __syncthreads();
    const int count = column < a.width ? held : 0;
    with_type(a.dy.dtype, [&](auto given) {
      // Rows that are asked for before the first is added; of f16 they are widened as they come.
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

DS_LOOP_KERNEL(position_dw, PositionDwArgs) {
  const int64_t i = thread_number();
  if (i >= a.places * a.width) return;
  const int64_t place = i / a.width, column = i % a.width;
  float sum = 0;
  for (int64_t r = place; place < a.seq && r < a.rows; r += a.seq)
    sum += get(a.dy, r * a.width + column);
  put(a.dw, i, sum);
}

DS_LOOP_KERNEL(mark_ids, PackArgs) {
  const int64_t i = thread_number();
  if (i < a.count && a.scalars->absent == 0) a.named[a.ids[i]] = 1;
}
// One block: the marked words in ascending order, then kNoRow.
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
    __syncthreads();  // room is free again
  }
  for (int64_t k = written + threadIdx.x; k < a.room; k += kPackThreads) a.numbers[k] = kNoRow;
}

// Numbers of a rank ascend, so a search finds a row; a rank that has not given it counts as 0.
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
