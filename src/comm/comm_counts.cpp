#include "comm/comm_counts.h"

#include "core/base/error.h"

namespace ds {

// The release store of used_ publishes a new row's name to readers. The numbers need no
// read-modify-write, since only one thread adds.
void CommCounts::add(std::string_view operation, size_t bytes) {
  size_t used = used_.load(std::memory_order_relaxed), at = 0;
  while (at < used && rows_[at].operation != operation) ++at;
  if (at == used) {
    ensure(used < kMost, "more than {} operations are counted", kMost);
    rows_[at].operation = operation;
    used_.store(used + 1, std::memory_order_release);
  }
  auto grow = [](std::atomic<int64_t>& sum, int64_t by) {
    sum.store(sum.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  };
  grow(rows_[at].calls, 1);
  grow(rows_[at].bytes, static_cast<int64_t>(bytes));
}

std::map<std::string, CommCount> CommCounts::all() const {
  std::map<std::string, CommCount> out;
  size_t used = used_.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    const Row& row = rows_[i];
    out[std::string(row.operation)] = {row.calls.load(std::memory_order_relaxed),
                                       row.bytes.load(std::memory_order_relaxed)};
  }
  return out;
}

}  // namespace ds
