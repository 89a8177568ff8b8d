#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "comm/collectives/collective.h"
#include "comm/reduction.h"
#include "core/base/round.h"

namespace ds {
namespace {

// The largest number of result bytes between two rounds: small enough that the other ranks read
// them while the caches of the machine still hold them.
constexpr size_t kCached = size_t{4} << 20;

}  // namespace

// Bytes received, up to rounding to whole elements: (W-1)/W * count elements of the wire type and
// the same number of results.
void Communicator::all_reduce(const void* in, void* out, size_t count, DType wire,
                              std::string_view label, ReduceOp op) {
  check_reduction(wire, op);
  size_t ranks = static_cast<size_t>(size_), bytes = count * unit_of(wire);
  perform({"all_reduce", reduction_detail(wire, op), bytes, label}, [&] {
    Rounds(*exchange_).sum_to(in, out, count, wire, op, -1);
    return (bytes + count * sum_size(wire)) * (ranks - 1) / ranks;
  });
}

// Bytes received, up to rounding to whole elements: (W-1)/W * count elements of the wire type and,
// at the root, the same number of results.
void Communicator::reduce(const void* in, void* out, size_t count, DType wire, int root,
                          std::string_view label, ReduceOp op) {
  check_root(root, size_);
  check_reduction(wire, op);
  size_t ranks = static_cast<size_t>(size_), bytes = count * unit_of(wire);
  perform({"reduce", fmt::format("{} to {}", reduction_detail(wire, op), exchange_->world(root)),
           bytes, label},
          [&] {
            Rounds(*exchange_).sum_to(in, out, count, wire, op, root);
            return (bytes + (rank_ == root ? count * sum_size(wire) : 0)) * (ranks - 1) / ranks;
          });
}

// For each chunk, every rank reduces its share over all ranks in a first round, and sends the
// results to the ranks that need them in a second round. Other ranks may still read a share's
// results while its rank begins the next chunk. The memory of these results is overwritten only
// after the next round, which each rank begins only when it has finished reading, so no additional
// round is needed to protect them.
void Rounds::sum_to(const void* in, void* out, size_t count, DType wire, ReduceOp op, int root) {
  size_t unit = unit_of(wire), sum = sum_size(wire), widest = std::max(unit, sum);
  auto ranks = static_cast<size_t>(size_), me = static_cast<size_t>(rank_);
  // Whether this rank receives all results, in `out`.
  bool kept = root < 0 || root == rank_;
  size_t largest = exchange_.prepare(Round::seen, ceil_div(count, ranks) * widest);
  size_t most = std::min(largest, kCached / ranks) / widest * ranks, first = 0;
  std::vector<std::byte> scratch(kept ? 0 : ceil_div(std::min(most, count), ranks) * sum);
  Part *sends = exchange_.sends(), *receives = exchange_.receives();
  do {
    size_t n = std::min(most, count - first), share = ceil_div(n, ranks);
    auto begin_of = [&](size_t r) { return first + std::min(n, r * share); };
    auto count_of = [&](size_t r) { return begin_of(r + 1) - begin_of(r); };
    for (size_t r = 0; r < ranks; ++r) {
      sends[r] = to_send(at(in, begin_of(r) * unit), count_of(r) * unit);
      receives[r] = {nullptr, count_of(me) * unit};
    }
    exchange_.round(sends, receives);
    std::byte* sums = kept ? at(out, begin_of(me) * sum) : scratch.data();
    sum_seen(at(in, begin_of(me) * unit), sums, count_of(me), wire, op);
    for (size_t r = 0; r < ranks; ++r) {
      bool given = root < 0 || static_cast<int>(r) == root;
      sends[r] = to_send(sums, given ? count_of(me) * sum : 0);
      receives[r] = {kept ? at(out, begin_of(r) * sum) : nullptr, kept ? count_of(r) * sum : 0};
    }
    exchange_.round(sends, receives);
    first += n;
  } while (first < count);
  exchange_.end();
}

}  // namespace ds
