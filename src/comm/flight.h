#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "comm/intent.h"
#include "core/base/json.h"

namespace ds {

// A record of the last operations of a rank in all its groups, which shows what the rank was doing
// when the groups ended. Keeps the operations in fixed storage; threadsafe. Times come from the
// coarse system clock (resolution of a few milliseconds), which is comparable between hosts.
class FlightRecord {
 public:
  static constexpr size_t kKept = 64;

  FlightRecord(int rank, int size);
  // Records the start of an operation and returns the number to pass to end().
  uint64_t start(std::string_view group, std::string_view operation, const Intent& intent);
  // Records the end of an operation; `good` is false if it failed. Neither does anything in a
  // forked child, where a lock that another thread held at the fork is never released.
  void end(uint64_t number, bool good);
  // Returns a line that names the rank and the error that ended the groups, a line of column names,
  // and one line for each operation, oldest first.
  std::string text() const;
  // Returns the same record as a JSON object whose "operations" are oldest first; times are
  // milliseconds since 1970 in UTC.
  Json json() const;

  // Sets the folder in which write() puts rank_N.txt; write() creates the folder. "": nothing is
  // written.
  void set_folder(std::string folder);
  std::string folder() const;
  // Keeps `reason`, if it is the first, and writes text() to the folder unless that has been done.
  // Does nothing in a forked child.
  void write(std::string_view reason) noexcept;

 private:
  enum class State : uint8_t { running, done, failed };
  struct Entry {
    Intent intent;
    char operation[32] = {}, group[24] = {};
    int64_t begun_ms = 0, ended_ms = 0;
    State state = State::running;
  };

  std::string text_locked() const;

  const int rank_, size_, process_;
  mutable std::mutex mutex_;
  uint64_t next_ = 0;
  std::array<Entry, kKept> entries_;
  std::string folder_, reason_;
  bool written_ = false;
};

}  // namespace ds
