#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

#include "comm/collectives/collective.h"
#include "comm/reduction.h"

namespace ds {

// Direct exchange: each rank sends to every other rank the elements that belong to it, and reduces
// its own elements over all ranks. Bytes received: (W-1) * count elements of the wire type.
void Communicator::reduce_scatter(const void* in, void* out, size_t count, DType wire,
                                  std::string_view label, ReduceOp op) {
  check_reduction(wire, op);
  size_t bytes = count * unit_of(wire);
  perform({"reduce_scatter", reduction_detail(wire, op), bytes, label}, [&] {
    Rounds(*exchange_).scatter_sums(in, out, Blocks(size_, count), wire, op);
    return bytes * static_cast<size_t>(size_ - 1);
  });
}

void Communicator::reduce_scatter_v(const void* in, void* out, std::span<const size_t> counts,
                                    DType wire, std::string_view label, ReduceOp op) {
  check_reduction(wire, op);
  Blocks blocks(size_, counts, "counts");
  size_t unit = unit_of(wire);
  perform(
      {"reduce_scatter_v", reduction_detail(wire, op), blocks.total() * unit, label, blocks.hash()},
      [&] {
        Rounds(*exchange_).scatter_sums(in, out, blocks, wire, op);
        return blocks.size(static_cast<size_t>(rank_)) * unit * static_cast<size_t>(size_ - 1);
      });
}

// Parts are not copied: after each round, this rank reads the others' parts by see() and reduces
// them directly into `out`.
void Rounds::scatter_sums(const void* in, void* out, const Blocks& blocks, DType wire,
                          ReduceOp op) {
  auto me = static_cast<size_t>(rank_);
  size_t unit = unit_of(wire);
  auto swap = [&](size_t r, size_t first, size_t most) -> GiveTake {
    return {
        to_send(at(in, (blocks.begin(r) + first) * unit), blocks.overlap(r, first, most) * unit),
        {nullptr, blocks.overlap(me, first, most) * unit}};
  };
  in_rounds(exchange_, Round::seen, blocks.most(), unit, swap, [&](size_t first, size_t most) {
    sum_seen(at(in, (blocks.begin(me) + first) * unit), at(out, first * sum_size(wire)),
             blocks.overlap(me, first, most), wire, op);
  });
}

// An exchange may return large parts only in pieces of limited size. Reductions are elementwise, so
// pieces do not change the bits.
void Rounds::sum_seen(const std::byte* own, std::byte* out, size_t count, DType wire, ReduceOp op) {
  size_t unit = unit_of(wire), most = exchange_.piece_bytes() / unit;
  const void** src = exchange_.seen();
  for (size_t first = 0; first < count; first += std::min(most, count)) {
    size_t n = std::min(most, count - first);
    for (int r = 0; r < size_; ++r) {
      src[r] = r == rank_ ? own + first * unit : exchange_.see(r, first * unit, n * unit);
    }
    tree_reduce(src, size_, wire, op, out + first * sum_size(wire), n);
  }
}

}  // namespace ds
