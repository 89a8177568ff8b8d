#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"

namespace ds {

// What one kind of collective of a group has cost this rank; sizes are powers of two.
struct CommTime {
  std::string group, operation;
  int ranks = 1;  // of the group
  uint64_t size =
      0;  // messages of more than size / 2 up to size bytes; 0: blocks that differ by rank
  int64_t calls = 0;
  uint64_t bytes = 0;  // sum of the messages
  int64_t ns = 0;      // from call to return
  int64_t waited_ns =
      0;  // of it, more than the rank took that returned soonest after its call, call by call
  int slowest = -1;  // the rank of the group that has waited least: the one that the others wait
                     // for; -1: not known
};

// Of a row, in bytes a second; 0 without time. Bus bandwidth is what each rank's link carries, so
// that it compares between operations and group sizes; by the definitions of NCCL's tests.
double algorithm_bandwidth(const CommTime& row);
double bus_bandwidth(const CommTime& row);

// The message of a collective by the same definitions, where `bytes` is what its ranks compare.
uint64_t message_bytes(std::string_view operation, uint64_t bytes, int ranks);

// A table for reading, first its names of columns; the same as text and, in basic units, as an
// object whose "rows" are objects, and as CSV.
std::vector<std::vector<std::string>> comm_log_table(std::span<const CommTime> rows);
std::string comm_log_text(std::span<const CommTime> rows);
Json comm_log_json(std::span<const CommTime> rows);
std::string comm_log_csv(std::span<const CommTime> rows);

// The times of a group's collectives on one rank, by operation and size. What others took is known
// only from them: single times are kept until all ranks compare them, which happens at the same
// call on all. One thread at a time.
class CommLog {
 public:
  static constexpr size_t kBatch = 1024;  // times between two comparisons

  // operations: as logged_operations takes them; empty: all.
  CommLog(std::string group, int ranks, std::span<const std::string> operations);
  // A call of `bytes` that ranks compare, or of `received` bytes where those are 0.
  void add(std::string_view operation, uint64_t bytes, uint64_t received, int64_t ns);
  bool full() const { return times_.size() >= kBatch; }
  // Times not compared yet, the same calls on every rank; then the least of all ranks for each of
  // them.
  std::span<const int64_t> times() const { return times_; }
  void settle(std::span<const int64_t> least);
  // Of collectives in the same order on all ranks, then of sends and receives.
  std::vector<CommTime>& rows() { return rows_; }
  const std::set<std::string, std::less<>>& operations() const { return operations_; }
  static bool of_two(std::string_view operation) {
    return operation == "send" || operation == "receive";
  }

 private:
  size_t row_of(std::string_view operation, uint64_t size);

  const std::string group_;
  const int ranks_;
  std::set<std::string, std::less<>> operations_;
  std::vector<CommTime> rows_;
  std::vector<int64_t> times_;
  std::vector<size_t> row_of_time_;
};

}  // namespace ds
