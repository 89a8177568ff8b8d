// Packing the rows of a row table that ids name, and summing the packed rows of all ranks,
// bit-identical to the reference. Row indices ascend in each rank's part, so the sum is a merge: a
// task goes through its range of rows with one cursor for each rank.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_table.cpp"
#include <hwy/foreach_target.h>

#include "core/program/granules.h"
#include "core/program/rows.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/rank_sum-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/formulas/rank_order.h"

HWY_BEFORE_NAMESPACE();
namespace ds::cpu::HWY_NAMESPACE {

// Writes `count` elements of x, or zeros if x is null, to `to` as f32, in whole vectors.
template <typename T>
HWY_INLINE void widen_row(const T* x, int64_t count, float* to) {
  if (!x) {
    std::fill_n(to, round_up(count, lanes()), 0.0f);
    return;
  }
  int64_t e = 0, step = lanes();
  for (; e + step <= count; e += step) store(load(x + e), to + e);
  if (e < count) store(load_part(x + e, count - e), to + e);
}

// The packed rows of all ranks, and the elements [first, end) of the table that are to be summed.
template <typename T>
struct PackedRows {
  explicit PackedRows(const KernelContext& c)
      : order(c.attrs),
        ranks(c.attrs.integer("ranks")),
        width(c.in[0].dims[1]),
        room(c.in[0].dims[0] / ranks),
        first(c.attrs.integer("first")),
        end(first + c.out[0].numel()),
        rows(c.in[0].as<T>()),
        numbers(c.in[1].as<int32_t>()),
        y(c.out[0].as<float>()) {}

  // Return the ascending indices of a rank's packed rows, and the packed row `index` of a rank.
  const int32_t* numbers_of(int64_t rank) const { return numbers + order.place(rank) * room; }
  const T* row_of(int64_t rank, int64_t index) const {
    return rows + (order.place(rank) * room + index) * width;
  }

  RankOrder order;
  // `room` is the number of packed rows of each rank, including unused ones.
  int64_t ranks, width, room, first, end;
  const T* rows;
  const int32_t* numbers;
  float* y;
};

// Sums row v over all ranks. If rank r has sent row v, it is packed row next[r] of that rank.
template <typename T>
HWY_INLINE void sum_row(const PackedRows<T>& p, int64_t v, const int64_t* next) {
  int64_t begin = std::max(v * p.width, p.first), end = std::min((v + 1) * p.width, p.end);
  for (int64_t at = begin; at < end; at += kGranule) {
    int64_t count = std::min(kGranule, end - at), column = at - v * p.width;
    auto load_rank = [&](int64_t r, float* to) HWY_ATTR {
      bool given = next[r] < p.room && p.numbers_of(r)[next[r]] == v;
      widen_row(given ? p.row_of(r, next[r]) + column : nullptr, count, to);
    };
    sum_over_ranks(p.ranks, count, load_rank, p.y + (at - p.first));
  }
}

// Fills rows [low, high) with zeros, then stores the sums of the rows that any rank has sent, in
// ascending order. `next` is room for one index per rank.
template <typename T>
void sum_rows_between(const PackedRows<T>& p, int64_t low, int64_t high, int64_t* next) {
  int64_t begin = std::max(low * p.width, p.first), end = std::min(high * p.width, p.end);
  std::fill_n(p.y + (begin - p.first), end - begin, 0.0f);
  for (int64_t r = 0; r < p.ranks; ++r) {
    const int32_t* numbers = p.numbers_of(r);
    next[r] = std::lower_bound(numbers, numbers + p.room, low) - numbers;
  }
  // A merge of the ranks' ascending indices: the smallest next row of any rank is summed, and the
  // cursor of each rank that has it moves on.
  for (;;) {
    int64_t v = kNoRow;
    for (int64_t r = 0; r < p.ranks; ++r) {
      if (next[r] < p.room) v = std::min<int64_t>(v, p.numbers_of(r)[next[r]]);
    }
    if (v >= high) return;
    sum_row(p, v, next);
    for (int64_t r = 0; r < p.ranks; ++r)
      next[r] += next[r] < p.room && p.numbers_of(r)[next[r]] == v;
  }
}

template <typename T>
void sum_table_of(const KernelContext& c) {
  const PackedRows<T> p(c);
  ensure(p.ranks < kMostSummedRanks, "sum_rows supports fewer than {} ranks, got {}",
         kMostSummedRanks, p.ranks);
  size_t need = static_cast<size_t>(p.ranks) * sizeof(int64_t);
  ensure(need <= c.team.scratch_bytes(),
         "sum_rows of {} ranks needs {} bytes of scratch per thread, but the team has {}", p.ranks,
         need, c.team.scratch_bytes());
  int64_t low = p.first / p.width, high = ceil_div(p.end, p.width), rows = rows_per_task(p.width);
  for_tasks(c.team, ceil_div(high - low, rows), [&](int64_t task, int thread) HWY_ATTR {
    int64_t begin = low + task * rows;
    auto* next = reinterpret_cast<int64_t*>(c.team.scratch(thread).data());
    sum_rows_between(p, begin, std::min(high, begin + rows), next);
  });
}

void sum_table(const KernelContext& c) {
  by_type(c.in[0].dtype, [&](auto t) { sum_table_of<decltype(t)>(c); });
}

}  // namespace ds::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ds::cpu {

HWY_EXPORT(sum_table);

namespace {

// Writes the distinct ids to `numbers` in ascending order and returns how many there are. A bitmap
// of the table's `rows` in scratch makes sorting unnecessary.
int64_t put_numbers(const KernelContext& c, int64_t rows, const TensorView& ids,
                    const TensorView& numbers) {
  std::span<std::byte> scratch = c.team.scratch(0);
  auto words = static_cast<size_t>(ceil_div(rows, 64));
  ensure(words * sizeof(uint64_t) <= scratch.size(),
         "pack_rows of {} rows needs {} bytes of scratch per thread, but the team has {}", rows,
         words * sizeof(uint64_t), scratch.size());
  auto* named = reinterpret_cast<uint64_t*>(scratch.data());
  std::fill_n(named, words, uint64_t{0});
  for (int32_t id : std::span(ids.as<int32_t>(), static_cast<size_t>(ids.numel())))
    named[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64);
  int64_t count = 0;
  for (size_t w = 0; w < words; ++w) {
    for (uint64_t left = named[w]; left != 0; left &= left - 1) {
      ensure(count < numbers.numel(), "pack_rows has room for {} rows, but the ids name more",
             numbers.numel());
      numbers.as<int32_t>()[count++] = static_cast<int32_t>(w * 64) + std::countr_zero(left);
    }
  }
  return count;
}

// Packs the rows that ids name, copied as bytes.
void pack_rows(const KernelContext& c) {
  const TensorView &table = c.in[0], &packed = c.out[0], &numbers = c.out[1];
  int64_t count = c.scalars.absent != 0 ? 0 : put_numbers(c, table.dims[0], c.in[1], numbers);
  auto* number = numbers.as<int32_t>();
  std::fill(number + count, number + numbers.numel(), kNoRow);
  auto row = static_cast<size_t>(table.dims[1] * size_of(table.dtype));
  const auto* from = table.as<std::byte>();
  auto* to = packed.as<std::byte>();
  for_blocks(c.team, packed.dims[0], rows_per_task(table.dims[1]), [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      std::byte* at = to + static_cast<size_t>(i) * row;
      if (i < count) {
        std::memcpy(at, from + static_cast<size_t>(number[i]) * row, row);
      } else {
        std::memset(at, 0, row);
      }
    }
  });
}

}  // namespace

void add_row_table(KernelRegistry& registry) {
  add_kernel(registry, "pack_rows", pack_rows);
  add_kernel(registry, "sum_rows", [](const KernelContext& c) {
    HWY_DYNAMIC_DISPATCH(sum_table)(c);
  });
}

}  // namespace ds::cpu
#endif  // HWY_ONCE
