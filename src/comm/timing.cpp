#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/collectives/collective.h"
#include "comm/comm_log.h"
#include "comm/comm_thread.h"

namespace ds {

void Communicator::start_log(std::span<const std::string> operations) {
  thread_->drain();
  if (!log_) log_ = std::make_unique<CommLog>(group_, size_, operations);
}

// Computes, for each call that has not been compared, the shortest time of all ranks. All ranks
// have the same number of such calls, because they have performed the same collectives.
void Communicator::settle_log() {
  std::span<const int64_t> own = log_->times();
  std::vector<int64_t> least(own.size());
  Call call{"comm_log", "", own.size_bytes(), "times"};
  call.counted = false;
  perform(call, [&] {
    Rounds(*exchange_)
        .sum_to(own.data(), least.data(), least.size(), DS_DTYPE_I64, ReduceOp::min, -1);
    return size_t{0};
  });
  log_->settle(least);
}

// Sends and receives differ between ranks, so their rows go last and are not compared.
std::vector<CommTime> Communicator::times() {
  if (!log_) raise(DS_ERROR_STATE, "the communication log of group '{}' was not started", group_);
  thread_->drain();
  settle_log();
  std::vector<CommTime> rows = log_->rows();
  std::stable_partition(rows.begin(), rows.end(),
                        [](const CommTime& row) { return !CommLog::of_two(row.operation); });
  std::vector<int64_t> own, all;
  for (const CommTime& row : rows) {
    if (!CommLog::of_two(row.operation)) own.push_back(row.waited_ns);
  }
  all.resize(own.size() * static_cast<size_t>(size_));
  Call call{"comm_log", "", own.size() * sizeof own[0], "sums"};
  call.counted = false;
  perform(call, [&] {
    Rounds(*exchange_)
        .gather_blocks(own.data(), all.data(), Blocks(size_, own.size() * sizeof own[0]));
    return size_t{0};
  });
  // All ranks wait for the slowest rank, so the rank that has waited least is the slowest.
  for (size_t i = 0; i < own.size(); ++i) {
    rows[i].slowest = 0;
    for (size_t r = 1; r < static_cast<size_t>(size_); ++r) {
      auto waited = [&](size_t rank) { return all[rank * own.size() + i]; };
      if (waited(r) < waited(static_cast<size_t>(rows[i].slowest)))
        rows[i].slowest = static_cast<int>(r);
    }
  }
  return rows;
}

}  // namespace ds
