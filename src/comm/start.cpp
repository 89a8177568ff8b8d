#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/collectives/collective.h"
#include "comm/comm_thread.h"
#include "comm/reduction.h"

namespace ds {
namespace {

using Op = CommRequest::Op;

bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce; }

// Converts counts to sizes in bytes. They do not overflow, because CommRequest::check() has bounded
// the counts.
std::vector<size_t> bytes_of(const std::vector<size_t>& counts, DType dtype) {
  std::vector<size_t> bytes = counts;
  for (size_t& b : bytes) b *= unit_of(dtype);
  return bytes;
}

// Bounds counts so that no size in bytes overflows, even over all ranks.
void check_counts(const std::vector<size_t>& counts, const char* name, DType dtype, size_t ranks) {
  size_t most = static_cast<size_t>(std::numeric_limits<int64_t>::max()) / unit_of(dtype) / ranks;
  for (size_t i = 0; i < counts.size(); ++i) {
    require(counts[i] <= most, "{}[{}] must be at most {}, got {}", name, i, most, counts[i]);
  }
}

void check_blocks(const std::vector<size_t>& blocks, const char* name, DType dtype, size_t ranks) {
  require(blocks.empty() || blocks.size() == ranks,
          "{} must have one entry for each of the {} ranks, got {}", name, ranks, blocks.size());
  check_counts(blocks, name, dtype, ranks);
}

}  // namespace

void CommRequest::check(int size) const {
  const CommRequest& r = *this;
  bool rooted =
      r.op == Op::broadcast || r.op == Op::reduce || r.op == Op::gather || r.op == Op::scatter;
  bool of_blocks = r.op == Op::all_gather || r.op == Op::reduce_scatter || r.op == Op::all_to_all;
  require(r.blocks.empty() || of_blocks,
          "only all_gather, reduce_scatter and all_to_all take blocks");
  require(r.out_blocks.empty() || (r.op == Op::all_to_all && !r.blocks.empty()),
          "only an all_to_all with blocks takes out_blocks");
  require(r.out_blocks.empty() == (r.op != Op::all_to_all || r.blocks.empty()),
          "an all_to_all with blocks needs out_blocks");
  require(r.blocks.empty() || (r.in.size() == 1 && r.out.size() == 1),
          "a collective with blocks takes one buffer, got {}", std::max(r.in.size(), r.out.size()));
  if (r.op == Op::barrier) return;
  auto ranks = static_cast<size_t>(size);
  check_counts(r.counts, "counts", r.dtype, ranks);
  check_blocks(r.blocks, "blocks", r.dtype, ranks);
  check_blocks(r.out_blocks, "out_blocks", r.dtype, ranks);
  if (reduces(r.op)) check_reduction(r.dtype, r.reduce);
  if (rooted) check_root(r.root, size);
}

// Calls the plain collective for one buffer, and for several buffers the coalesced form if there is
// one.
void Communicator::make(const CommRequest& r, std::string_view label) {
  r.check(size_);
  bool unequal = !r.blocks.empty();
  std::vector<size_t> bytes =
      r.op == Op::barrier ? std::vector<size_t>() : bytes_of(r.counts, r.dtype);
  size_t lists = bytes.size();
  switch (r.op) {
    case Op::all_reduce:
      if (lists == 1) return all_reduce(r.in[0], r.out[0], r.counts[0], r.dtype, label, r.reduce);
      return all_reduce_coalesced(r.in, r.out, r.counts, r.dtype, label, r.reduce);
    case Op::all_gather:
      if (unequal) return all_gather_v(r.in[0], r.out[0], bytes_of(r.blocks, r.dtype), label);
      if (lists == 1) return all_gather(r.in[0], r.out[0], bytes[0], label);
      return all_gather_coalesced(r.in, r.out, bytes, label);
    case Op::reduce_scatter:
      if (unequal) return reduce_scatter_v(r.in[0], r.out[0], r.blocks, r.dtype, label, r.reduce);
      if (lists == 1)
        return reduce_scatter(r.in[0], r.out[0], r.counts[0], r.dtype, label, r.reduce);
      return reduce_scatter_coalesced(r.in, r.out, r.counts, r.dtype, label, r.reduce);
    case Op::all_to_all:
      if (unequal) {
        return all_to_all_v(r.in[0], bytes_of(r.blocks, r.dtype), r.out[0],
                            bytes_of(r.out_blocks, r.dtype), label);
      }
      for (size_t i = 0; i < lists; ++i) all_to_all(r.in[i], r.out[i], bytes[i], label);
      return;
    case Op::broadcast:
      if (lists == 1) return broadcast(r.out[0], bytes[0], r.root, label);
      return broadcast_coalesced(r.out, bytes, r.root, label);
    case Op::barrier:
      return barrier(label);
    case Op::reduce:
      for (size_t i = 0; i < lists; ++i) {
        reduce(r.in[i], r.out[i], r.counts[i], r.dtype, r.root, label, r.reduce);
      }
      return;
    case Op::gather:
      for (size_t i = 0; i < lists; ++i) gather(r.in[i], r.out[i], bytes[i], r.root, label);
      return;
    case Op::scatter:
      for (size_t i = 0; i < lists; ++i) scatter(r.in[i], r.out[i], bytes[i], r.root, label);
      return;
  }
}

// Checks the request at once, so that nothing invalid is queued.
std::shared_ptr<Work> Communicator::start(CommRequest request, std::string_view label) {
  request.check(size_);
  auto job = [this, request = std::move(request), text = std::string(label)] {
    make(request, text);
  };
  if (callback_threads()) return CommThread::make_now(job);
  return thread_->start(this, std::move(job));
}

}  // namespace ds
