#pragma once
#include <chrono>
#include <optional>
#include <string>

#include "launch/blame.h"

namespace ds {

// A schedule for ending a job over several hosts after a rank has failed. For a second, the
// launcher waits for records that may name the cause. Then it tells the agents to end and waits for
// them. Agents that are left are killed.
class Pressure {
 public:
  enum class Act { none, end, kill };

  // Begins the sequence. Later calls do nothing.
  void start() {
    if (!since_) since_ = Clock::now();
  }

  // Handles a second Ctrl-C: agents are told to end at once, and the wait for them is short, even
  // if their hosts cannot be reached.
  void insist() {
    since_ = Clock::now() - kPatience;
    limit_ = kPatience + kShort;
  }

  // Returns the act that is due now, or `none`. Each act is returned only once.
  Act next() {
    if (!since_ || acts_ == 2) return Act::none;
    if (Clock::now() - *since_ < (acts_ == 0 ? kPatience : limit_)) return Act::none;
    return ++acts_ == 1 ? Act::end : Act::kill;
  }

  // Returns whether agents were told to end. If so, the launcher itself causes all later failures.
  bool begun() const { return acts_ > 0; }

  static constexpr std::chrono::seconds kPatience{1}, kLimit{6}, kShort{3};

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> since_;
  std::chrono::seconds limit_ = kLimit;
  int acts_ = 0;
};

// The time for which a rank that has ended with kStoppedCode, without a request to stop, does not
// count as failed. The other ranks have this time (by default ten seconds) to end with the same
// code or with 0. If they do not, the rank counts as failed, and the other ranks are ended.
class StopDoubt {
 public:
  static constexpr std::chrono::milliseconds kPatience{10000};
  explicit StopDoubt(std::chrono::milliseconds patience = kPatience) : patience_(patience) {}

  // Returns the failure once that time has passed, otherwise nullopt. `stopped` is the rank in
  // question, if there is one; `asked` says whether a stop was forwarded; `on` is " on host 'X'" or
  // "", for the text.
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
