#include "comm/blocks.h"
#include "comm/reduction.h"

namespace ds {

// Direct exchange: each rank gives every other one that rank's elements; each reduces its own over all ranks.
// Received: (W-1) * count elements of the wire type.
void Communicator::reduce_scatter(const void* in, void* out, size_t count_, DType wire,
                                  std::string_view label, ReduceOp op) {
  check_reduction(wire, op);
  begin("reduce_scatter", reduction_detail(wire, op), count_ * unit_of(wire), label);
  scatter_sums(in, out, Blocks(size_, count_), wire, op);
  count("reduce_scatter", count_ * unit_of(wire) * static_cast<size_t>(size_ - 1));
}

void Communicator::reduce_scatter_v(const void* in, void* out, std::span<const size_t> counts, DType wire,
                                    std::string_view label, ReduceOp op) {
  check_reduction(wire, op);
  Blocks blocks(size_, counts, "counts");
  begin("reduce_scatter_v", reduction_detail(wire, op), blocks.total() * unit_of(wire), label, blocks.hash());
  scatter_sums(in, out, blocks, wire, op);
  size_t own = blocks.size(static_cast<size_t>(rank_));
  count("reduce_scatter_v", own * unit_of(wire) * static_cast<size_t>(size_ - 1));
}

void Communicator::scatter_sums(const void* in, void* out, const Blocks& blocks, DType wire, ReduceOp op) {
  auto ranks = static_cast<size_t>(size_), me = static_cast<size_t>(rank_);
  size_t unit = unit_of(wire);
  exchange_->prepare(blocks.most() * unit);
  size_t most = exchange_->part_bytes(Round::seen) / unit, first = 0;
  Parts parts;
  do {
    size_t own = blocks.part(me, first, most);
    for (size_t r = 0; r < ranks; ++r) {
      parts.sends[r] = part(at(in, (blocks.begin(r) + first) * unit), blocks.part(r, first, most) * unit);
      parts.receives[r] = {nullptr, own * unit};
    }
    exchange_->round(parts.sends, parts.receives);
    sum_seen(at(in, (blocks.begin(me) + first) * unit), at(out, first * sum_size(wire)), own, wire, op);
    first += std::min(most, blocks.most());
  } while (first < blocks.most());
  exchange_->end();
}

void Communicator::sum_seen(const std::byte* own, std::byte* out, size_t count, DType wire, ReduceOp op) {
  size_t unit = unit_of(wire), most = exchange_->piece_bytes() / unit;
  const void* src[kMaxRanks];
  for (size_t first = 0; first < count; first += std::min(most, count)) {
    size_t n = std::min(most, count - first);
    for (int r = 0; r < size_; ++r) {
      src[r] = r == rank_ ? own + first * unit : exchange_->see(r, first * unit, n * unit);
    }
    tree_reduce(src, size_, wire, op, out + first * sum_size(wire), n);
  }
}

}  // namespace ds
