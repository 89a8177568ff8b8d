// Row tables: if a gradient is zero outside the rows that ids name, ranks exchange only these rows
// and their indices.
#include <algorithm>
#include <cstdint>
#include <span>

#include "core/program/rows.h"
#include "kernels/formulas/rank_order.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Packs the rows that ids name, each once, in ascending order. A rank without data packs no rows.
template <typename T>
void pack_rows(const KernelContext& c) {
  const T* table = c.in[0].as<T>();
  const int32_t *ids = c.in[1].as<int32_t>(), *ids_end = ids + c.in[1].numel();
  T* rows = c.out[0].as<T>();
  auto* numbers = c.out[1].as<int32_t>();
  int64_t height = c.in[0].dims[0], width = c.in[0].dims[1], room = c.out[1].numel(), count = 0;
  for (int64_t v = 0; c.scalars.absent == 0 && v < height; ++v) {
    if (std::find(ids, ids_end, v) == ids_end) continue;
    ensure(count < room, "pack_rows has room for {} rows, but the ids name more", room);
    std::copy_n(table + v * width, width, rows + count * width);
    numbers[count++] = static_cast<int32_t>(v);
  }
  std::fill(numbers + count, numbers + room, kNoRow);
  std::fill(rows + count * width, rows + room * width, T(0));
}

// y[e] = the sum over ranks of element first + e of their tables. A row that a rank did not send
// counts as 0.
template <typename T>
void sum_rows(const KernelContext& c) {
  const T* rows = c.in[0].as<T>();
  const auto* numbers = c.in[1].as<int32_t>();
  float* y = c.out[0].as<float>();
  const RankOrder order(c.attrs);
  int64_t ranks = c.attrs.integer("ranks"), first = c.attrs.integer("first");
  int64_t room = c.in[1].numel() / ranks, width = c.in[0].dims[1];
  std::span<float> x = scratch_of<float>(c, ranks);
  for (int64_t e = 0; e < c.out[0].numel(); ++e) {
    int64_t row = (first + e) / width, column = (first + e) % width;
    for (int64_t r = 0; r < ranks; ++r) {
      // After a gather level by level, the part of rank r has the index order.place(r).
      const int32_t* given = numbers + order.place(r) * room;
      int64_t k = std::find(given, given + room, row) - given;
      const T* values = rows + (order.place(r) * room + k) * width;
      x[static_cast<size_t>(r)] = k < room ? static_cast<float>(get(values, column)) : 0;
    }
    y[e] = tree_sum(x);
  }
}

}  // namespace

void add_row_table(KernelRegistry& registry) {
  add_by_type(registry, "pack_rows", []<typename T>() { return pack_rows<T>; });
  add_by_type(registry, "sum_rows", []<typename T>() { return sum_rows<T>; });
}

}  // namespace ds::ref
