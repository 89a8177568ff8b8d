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

// Time and volume of one operation of a group on this rank, for one range of message sizes. Ranges
// end at powers of two.
struct CommTime {
  std::string group, operation;
  // Number of ranks in the group.
  int ranks = 1;
  // Upper end of the row's range: its messages have more than size / 2 and at most `size` bytes. 0
  // if the ranks compare no size, as in a barrier, an all_to_all_v and an empty collective.
  uint64_t size = 0;
  int64_t calls = 0;
  // Sum of the messages' sizes or, if `size` is 0, of the bytes that this rank received.
  uint64_t bytes = 0;
  // Time from call to return.
  int64_t ns = 0;
  // The part of `ns` spent waiting: for each call, its time minus that of the fastest rank. It is 0
  // for sends and receives.
  int64_t waited_ns = 0;
  // The rank of the group that waited least, for which the other ranks waited; -1: not known.
  int slowest = -1;
};

// These return the bandwidth of a row in bytes per second, or 0 if the row has no time. Bus
// bandwidth is the rate on each rank's link, so it is comparable between operations and group
// sizes. The definitions are those of nccl-tests.
double algorithm_bandwidth(const CommTime& row);
double bus_bandwidth(const CommTime& row);

// Returns the message size of a collective as nccl-tests defines it. `bytes` is the size that the
// ranks compare; for some operations, it is the size of one block.
uint64_t message_bytes(std::string_view operation, uint64_t bytes, int ranks);

// These return the rows in four forms. The table, whose first row has the column names, and the
// text, which prints that table, have readable units. The JSON object, with its array "rows", and
// the CSV have bytes and seconds.
std::vector<std::vector<std::string>> comm_log_table(std::span<const CommTime> rows);
std::string comm_log_text(std::span<const CommTime> rows);
Json comm_log_json(std::span<const CommTime> rows);
std::string comm_log_csv(std::span<const CommTime> rows);

// A record of how long a group's collectives take on one rank, by operation and size. How long a
// rank waited follows only from the times of the other ranks, so the time of each call is kept
// until all ranks compare their times, which they do at the same call. Used by one thread at a
// time.
class CommLog {
 public:
  // Number of timed collectives between two comparisons.
  static constexpr size_t kBatch = 1024;

  // `operations` are names that logged_operations() accepts; empty: all operations.
  CommLog(std::string group, int ranks, std::span<const std::string> operations);
  // Adds a call if its operation is listed. `bytes` is the size that ranks compare; if that is 0,
  // the call is added to the row of size 0 with `received` bytes.
  void add(std::string_view operation, uint64_t bytes, uint64_t received, int64_t ns);
  bool full() const { return times_.size() >= kBatch; }
  // times() returns the times that have not been compared yet; they belong to the same calls on
  // every rank. settle() takes the shortest time that any rank had for each of these calls, adds
  // the differences to waited_ns and forgets the times.
  std::span<const int64_t> times() const { return times_; }
  void settle(std::span<const int64_t> least);
  // Returns the rows. The rows of collectives have the same order on all ranks; the rows of sends
  // and receives may be anywhere between them.
  std::vector<CommTime>& rows() { return rows_; }
  const std::set<std::string, std::less<>>& operations() const { return operations_; }
  // Returns whether the operation is a send or a receive, whose times are not compared over the
  // group.
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
