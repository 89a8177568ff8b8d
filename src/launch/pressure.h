#pragma once
#include <chrono>
#include <optional>

namespace ds {

// What is done about a job over hosts of which a rank has failed: for a second, records of what caused it may
// come; then agents are told to end, and are waited for; those that are left are killed.
class Pressure {
 public:
  enum class Act { none, end, kill };

  // The first call counts.
  void start() {
    if (!since_) since_ = Clock::now();
  }

  // What is due, each once.
  Act next() {
    if (!since_ || acts_ == 2) return Act::none;
    if (Clock::now() - *since_ <= (acts_ == 0 ? kPatience : kLimit)) return Act::none;
    return ++acts_ == 1 ? Act::end : Act::kill;
  }

  bool begun() const { return acts_ > 0; }  // what fails from now on was ended by the launcher

  static constexpr std::chrono::seconds kPatience{1}, kLimit{20};

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> since_;
  int acts_ = 0;
};

}  // namespace ds
