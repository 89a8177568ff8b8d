#include "launch/launch.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <stdexcept>
#include <system_error>

#include "launch/rank.h"

namespace ds {
namespace {

using Clock = std::chrono::steady_clock;

// SIGINT, SIGTERM, SIGHUP and SIGCHLD wait to be fetched by next(), for the life of this object.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&set_, number);
    struct sigaction normal {};
    normal.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &normal, &child_);  // an inherited "ignore" would take the exit codes away
    pthread_sigmask(SIG_BLOCK, &set_, &mask_);
  }
  ~Signals() {
    while (next(0) != 0) continue;  // has been acted upon: must not strike when the mask goes
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
    sigaction(SIGCHLD, &child_, nullptr);
  }
  // The next signal, 0 when none comes within the time.
  int next(int64_t milliseconds) {
    timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
    int number = sigtimedwait(&set_, nullptr, &limit);
    return number < 0 ? 0 : number;
  }
  const sigset_t& mask() const { return mask_; }  // of the caller

 private:
  sigset_t set_{}, mask_{};
  struct sigaction child_ {};
};

class Job {
 public:
  Job(const LaunchOptions& options, const std::vector<std::string>& command)
      : options_(options), command_(command), url_(fresh_url()) {}
  ~Job() {
    stop(SIGKILL);
    for (pid_t pid : ranks_) {
      if (pid > 0) waitpid(pid, nullptr, 0);
    }
  }

  int run() {
    for (int r = 0; r < options_.ranks && code_ == 0; ++r) start(r);
    while (running_ > 0) {
      int number = signals_.next(kLookMs);
      if (number == SIGINT || number == SIGTERM) stop(interrupts_++ == 0 ? SIGINT : SIGKILL);
      // A closed terminal may send several; the ranks save and end.
      if (number == SIGHUP && interrupts_++ == 0) stop(SIGTERM);
      for (size_t r = 0; r < ranks_.size(); ++r) collect(r);
      if (code_ != 0) press();
    }
    return code_;
  }

 private:
  static constexpr int64_t kLookMs = 200;

  void start(int rank) {
    RankEnvironment environment{rank, options_.ranks, url_, &pipe_};
    Started started = start_rank(command_, environment, signals_.mask());
    if (started.error == 0) {
      ranks_.push_back(started.pid);
      ++running_;
      return;
    }
    report(started.error == ENOENT ? 127 : 126, fmt::format("'{}' cannot be run: {}", command_[0],
                                                            std::generic_category().message(started.error)));
    stop(SIGKILL);
  }

  // Takes the exit code of a rank that has ended, and kills what it left in its process group.
  void collect(size_t rank) {
    pid_t& pid = ranks_[rank];
    siginfo_t info{};
    if (pid == 0 || waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0) {
      return;
    }
    kill(-pid, SIGKILL);  // before the wait: until then the number cannot belong to someone else
    waitpid(pid, nullptr, 0);
    pid = 0;
    --running_;
    bool exited = info.si_code == CLD_EXITED;
    if (exited && info.si_status == 0) return;
    report(exited ? info.si_status : 128 + info.si_status,
           fmt::format("rank {} {} {}", rank, exited ? "exited with code" : "was killed by signal",
                       info.si_status));
  }

  // Keeps the first failure.
  void report(int code, const std::string& line) {
    if (code_ != 0) return;
    code_ = code;
    failed_ = Clock::now();
    fmt::print(stderr, "libds launch: {}\n", line);
  }

  // After a failure: patience, SIGTERM, SIGKILL.
  void press() {
    auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - failed_).count();
    if (waited >= options_.grace_ms && pressure_ == 0) {
      ++pressure_;
      stop(SIGTERM);
    }
    if (waited >= options_.grace_ms + options_.term_ms && pressure_ == 1) {
      ++pressure_;
      stop(SIGKILL);
    }
  }

  void stop(int number) {
    for (pid_t pid : ranks_) {
      if (pid > 0) kill(-pid, number);
    }
  }

  const LaunchOptions& options_;
  const std::vector<std::string>& command_;
  std::string url_;
  LauncherPipe pipe_;
  Signals signals_;
  std::vector<pid_t> ranks_;  // 0: has ended
  int running_ = 0;
  int code_ = 0;
  int interrupts_ = 0;
  int pressure_ = 0;
  Clock::time_point failed_;
};

}  // namespace

int launch(const LaunchOptions& options, const std::vector<std::string>& command) {
  if (options.ranks < 1)
    throw std::invalid_argument(fmt::format("ranks must be 1 or more, got {}", options.ranks));
  if (command.empty()) throw std::invalid_argument("command must name a program, got no words");
  return Job(options, command).run();
}

}  // namespace ds
