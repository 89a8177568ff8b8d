#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "launch/blame.h"

namespace ds {

// What is done about a job over hosts of which a rank has failed: for a second, records of what
// caused it may come; then agents are told to end, and are waited for; those that are left are
// killed.
class Pressure {
 public:
  enum class Act { none, end, kill };

  // The first call counts.
  void start() {
    if (!since_) since_ = Clock::now();
  }

  // A second Ctrl-C: agents are told at once, and the wait for them is short, whatever has become
  // of their hosts.
  void insist() {
    since_ = Clock::now() - kPatience;
    limit_ = kPatience + kShort;
  }

  // What is due, each once.
  Act next() {
    if (!since_ || acts_ == 2) return Act::none;
    if (Clock::now() - *since_ < (acts_ == 0 ? kPatience : limit_)) return Act::none;
    return ++acts_ == 1 ? Act::end : Act::kill;
  }

  bool begun() const { return acts_ > 0; }  // what fails from now on was ended by the launcher

  static constexpr std::chrono::seconds kPatience{1}, kLimit{6}, kShort{3};

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> since_;
  std::chrono::seconds limit_ = kLimit;
  int acts_ = 0;
};

// A rank ended as one that was stopped, and nobody asked for it: for a while (ten seconds between
// hosts) the others may end likewise. Then the first that ended has failed, and the others are
// ended.
class StopDoubt {
 public:
  static constexpr std::chrono::milliseconds kPatience{10000};
  explicit StopDoubt(std::chrono::milliseconds patience = kPatience) : patience_(patience) {}

  // asked: a stop was passed on; on: " on host 'X'" for the text, or nothing. Returns the failure
  // once it is one.
  std::optional<RankFailure> next(const std::optional<RankFailure>& stopped, bool asked,
                                  const std::string& on = "") {
    if (!stopped || asked) return std::nullopt;
    if (!since_) since_ = Clock::now();
    if (Clock::now() - *since_ < patience_) return std::nullopt;
    RankFailure failure = *stopped;
    failure.code = kLeftAloneCode;
    failure.text = left_alone(failure.rank, on);
    return failure;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::milliseconds patience_;
  std::optional<Clock::time_point> since_;
};

}  // namespace ds
