#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ds {

// Number of calls of an operation and their payload: the bytes that this rank received from others.
struct CommCount {
  int64_t calls = 0;
  int64_t bytes = 0;
};

// Counters of calls and bytes by operation. One thread at a time may add, without a lock; any
// thread may read meanwhile.
class CommCounts {
 public:
  // Adds one call. `operation` must outlive this object.
  void add(std::string_view operation, size_t bytes);
  std::map<std::string, CommCount> all() const;

 private:
  struct Row {
    // Written before `used_` includes the row.
    std::string_view operation;
    std::atomic<int64_t> calls{0}, bytes{0};
  };
  // Larger than the number of distinct operations.
  static constexpr size_t kMost = 32;

  std::array<Row, kMost> rows_;
  std::atomic<size_t> used_{0};
};

}  // namespace ds
