#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace ds {

// Calls of an operation and their payload: bytes that a rank receives from others.
struct CommCount {
  int64_t calls = 0;
  int64_t bytes = 0;
};

// By operation. One thread at a time adds, and pays for no lock; any thread may read meanwhile.
class CommCounts {
 public:
  // The name outlives this object.
  void add(std::string_view operation, size_t bytes);
  std::map<std::string, CommCount> all() const;

 private:
  struct Row {
    std::string_view operation;  // written before `used_` says that it is there
    std::atomic<int64_t> calls{0}, bytes{0};
  };
  static constexpr size_t kMost = 32;  // more than there are operations

  std::array<Row, kMost> rows_;
  std::atomic<size_t> used_{0};
};

}  // namespace ds
