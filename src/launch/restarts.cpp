// Problem. A failed job is started again as a whole (docs/adr/0068), but not if it would fail in
// the same way, nor so often that failing starts keep a cluster busy.
//
// Algorithm. After each failure, judge() decides whether a restart may follow. There is no restart
// after a code that means a wrong command or configuration (hopeless()), after three consecutive
// starts that end soon with the same code (Alike), or after the last allowed restart. Waits double
// from first_wait_ms to longest_wait_ms. If too few ranks are left, the launcher checks again
// later, which counts as a restart, unless a scheduler takes the job over (wait_for_ranks()).

#include "launch/restarts.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "launch/rank.h"
#include "launch/signals.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

int64_t milliseconds_since(Clock::time_point begin) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
}

std::string seconds_text(int64_t milliseconds) {
  return fmt::format("{:g} s", static_cast<double>(milliseconds) / 1000);
}

std::string ranks_text(int count) { return fmt::format("{} rank{}", count, count == 1 ? "" : "s"); }

void say(const std::string& line) {
  if (!line.empty()) fmt::print(stderr, "libds launch: {}\n", line);
}

// Waits for `milliseconds`; returns false at once if a signal requests the end.
bool pause(int64_t milliseconds) {
  Signals signals{SIGINT, SIGTERM, SIGHUP};
  const Clock::time_point begin = Clock::now();
  for (int64_t waited = 0; waited < milliseconds; waited = milliseconds_since(begin)) {
    const int number = signals.next(milliseconds - waited);
    if (number != 0 && number != SIGCHLD) return false;
  }
  return true;
}

// Returns why a restart would end in the same way, or "".
std::string hopeless(const RankFailure& failure) {
  if (failure.by_signal) return "";
  if (failure.code == 2) return "code 2 says that its command is wrong";
  if (failure.code == kRefusedCode)
    return fmt::format("code {} says that its configuration is refused", kRefusedCode);
  if (failure.code == 126 || failure.code == 127)
    return fmt::format("code {} says that its command cannot be run", failure.code);
  return "";
}

// A count of consecutive starts that end soon and in the same way. A death by SIGKILL or SIGTERM,
// which may come from outside, sets it to 0.
class Alike {
 public:
  static constexpr int kMost = 3;

  void add(const RankFailure& failure, bool soon) {
    const bool from_outside =
        failure.by_signal && (failure.code == 128 + SIGKILL || failure.code == 128 + SIGTERM);
    // The rank does not matter, because any rank may be the first to end by the same error.
    count_ = !soon || from_outside ? 0 : failure.code == last_code_ ? count_ + 1 : 1;
    last_code_ = failure.code;
  }
  bool enough() const { return count_ >= kMost; }

 private:
  int last_code_ = 0, count_ = 0;
};

// The loop over a job's starts, with the decision after each failure and the messages about it.
class Restarts {
 public:
  Restarts(const RestartOptions& options, Attempts& attempts)
      : options_(options),
        attempts_(attempts),
        made_(options.made),
        wait_ms_(options.first_wait_ms) {
    if (options_.most > 0 && options_.name.empty())
      options_.name = "launch-" + fresh_secret().substr(0, 8);
  }

  // A stop that the launcher has forwarded ends the loop, whatever the code.
  int run() {
    for (;;) {
      const JobEnd end = attempt();
      if (end.failure.code == 0 || end.failure.stopped()) return end.failure.code;
      if (end.asked && !final_) say(end.failure.text);
      if (!end.asked) judge(end.failure);
      if (end.asked || final_ || !wait_for_ranks(end.failure.text)) return end.failure.code;
    }
  }

 private:
  // An exception of the first start means wrong arguments and is rethrown; an exception of a later
  // start is a failure like any other.
  JobEnd attempt() {
    judged_ = final_ = false;
    began_ = Clock::now();
    Variables more;
    if (options_.most > 0)
      more = {{"DS_RESTART", std::to_string(made_)}, {"DS_RUN", options_.name}};
    auto on_failure = [&](const RankFailure& failure) { judge(failure); };
    if (made_ == options_.made) return attempts_.run(made_, more, on_failure);
    try {
      return attempts_.run(made_, more, on_failure);
    } catch (const std::exception& error) {
      return {{.code = 1, .text = error.what()}};
    }
  }

  // Decides whether a restart may follow. If not, prints the failure and, unless the job is never
  // restarted, the reason. Later calls for the same start do nothing.
  void judge(const RankFailure& failure) {
    if (std::exchange(judged_, true)) return;
    const int64_t lived_ms = milliseconds_since(began_);
    alike_.add(failure, lived_ms < options_.short_ms);
    if (lived_ms >= options_.long_ms) wait_ms_ = options_.first_wait_ms;
    const std::string reason = reason_against(failure);
    final_ = options_.most == 0 || !reason.empty();
    if (final_) say(failure.text + (reason.empty() ? "" : "; no restart: " + reason));
  }

  std::string reason_against(const RankFailure& failure) const {
    if (options_.most == 0) return "";
    if (std::string reason = hopeless(failure); !reason.empty()) return reason;
    if (made_ >= options_.most) return none_left();
    if (alike_.enough()) {
      return fmt::format("{} starts in a row have ended in this way within {}", Alike::kMost,
                         seconds_text(options_.short_ms));
    }
    return "";
  }

  std::string none_left() const { return fmt::format("all {} have been made", options_.most); }

  // Prints what follows the failure, waits, and returns whether the job is to be started again.
  // Another check for hosts counts as a restart.
  bool wait_for_ranks(std::string text) {
    RanksLeft left = look();
    for (;;) {
      if (!left.without.empty()) text += (text.empty() ? "" : "; ") + left.without;
      const bool enough = left.ranks >= options_.least_ranks;
      if (!enough && !may_look_again(left, text)) return false;
      attempts_.note(++made_);
      const int64_t wait_ms =
          std::exchange(wait_ms_, std::min(2 * wait_ms_, options_.longest_wait_ms));
      const std::string next =
          enough ? fmt::format("restart {} on {}", count(made_), ranks_text(left.ranks))
                 : fmt::format("next check for restart {}", count(made_));
      say(fmt::format("{}; {} in {}", text, next, seconds_text(wait_ms)));
      if (!pause(wait_ms)) return say("stopped before restart " + count(made_)), false;
      if (enough) return true;
      left = look();
      text = left.ranks < options_.least_ranks ? "restart " + count(made_) : "";
      if (text.empty())
        return say(fmt::format("restart {} on {}", count(made_), ranks_text(left.ranks))), true;
    }
  }

  RanksLeft look() {
    try {
      return attempts_.left();
    } catch (const std::exception& error) {
      return {0, error.what()};
    }
  }

  // Returns whether to wait for more ranks; if not, prints what happens to the job instead.
  bool may_look_again(const RanksLeft& left, std::string& text) {
    text += fmt::format("; {} {} left, {} are needed (--min-ranks)", ranks_text(left.ranks),
                        left.ranks == 1 ? "is" : "are", options_.least_ranks);
    const bool more = made_ < options_.most;
    const std::string end = more ? attempts_.heir() : "no restart: " + none_left();
    if (end.empty()) return true;
    // The scheduler may end this process before hand_over() returns.
    say(text + "; " + end);
    return more && !attempts_.hand_over();
  }

  // Returns a text such as "1 of 3".
  std::string count(int restart) const { return fmt::format("{} of {}", restart, options_.most); }

  RestartOptions options_;
  Attempts& attempts_;
  int made_;
  int64_t wait_ms_;
  Clock::time_point began_;
  Alike alike_;
  // Whether the current start was judged, and whether it is the last.
  bool judged_ = false, final_ = false;
};

}  // namespace

int run_with_restarts(const RestartOptions& options, Attempts& attempts) {
  return Restarts(options, attempts).run();
}

}  // namespace ds
