#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "comm/intent.h"
#include "core/base/json.h"

namespace ds {

// The last operations of a rank in all its groups, for the question what each rank was doing when
// they ended. Fixed storage; threadsafe. Times are those of the coarse system clock (some ms),
// which hosts share.
class FlightRecord {
 public:
  static constexpr size_t kKept = 64;

  FlightRecord(int rank, int size);
  // Returns the number that ends it.
  uint64_t start(std::string_view group, std::string_view operation, const Intent& intent);
  void end(uint64_t number, bool good);
  // A line for each operation, oldest first, below a line that says whose they are and what ended
  // them.
  std::string text() const;
  // The same as an object, "operations" oldest first; times are milliseconds since 1970 in UTC.
  Json json() const;

  // Where `write` puts rank_N.txt; made when it is written. "": nowhere.
  void set_folder(std::string folder);
  std::string folder() const;
  // Once for each folder: the text, with what ended the group. Not in a forked child.
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
