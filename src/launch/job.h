#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launch/rank.h"
#include "launch/signals.h"
#include "launch/watch.h"

namespace ds {

// How the ranks of a job on this host end.
struct JobOptions {
  int64_t grace_ms = 10000;  // after the first failure the other ranks have this long to end by themselves,
  int64_t term_ms = 3000;    // then, after SIGTERM, this long before SIGKILL
  std::string log_dir;       // rank N writes into rank_N.log of this folder; "": where this process writes
  // The job is a part of a larger one, whose launcher sends SIGUSR1 for an interrupt and SIGUSR2 for a
  // hangup; SIGTERM or the end of the parent says that the larger one ends: then nothing is reported.
  bool part = false;
  // Where the launcher of the larger job gives orders, a letter each; its end is that of the launcher. -1: by
  // signals.
  int orders = -1;
};

// Orders. interrupt: as a first Ctrl-C, the second time as a second one. hangup: as a closed terminal. end: a
// rank elsewhere has failed.
enum class Order : char { interrupt = 'i', hangup = 'h', end = 'e' };

// What is said of the rank that failed first.
struct RankFailure {
  int rank = -1;
  int code = 0;  // 0: none has failed
  bool by_signal = false;
  std::string text;  // "rank 1 exited with code 7"
};

// Runs a command once per place and waits for all.
class Job {
 public:
  Job(JobOptions options, std::vector<RankPlace> places, std::vector<std::string> command);
  ~Job();  // kills what runs
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // The failure is complete as soon as `on_failure` is called, before the other ranks are stopped.
  template <typename OnFailure>
  const RankFailure& run(OnFailure on_failure) {
    start_all();
    bool told = false;
    for (;;) {
      if (failure_.code != 0 && !told && !ending_) {
        on_failure(failure_);
        told = true;
      }
      if (running_ == 0) return failure_;
      look();
    }
  }

 private:
  void start_all();
  void start(const RankPlace& place);
  void look();
  void obey(int signal_number);
  void take_orders();
  void end_with_the_larger_job();
  void collect(size_t index);
  void fail(RankFailure failure);
  void press();
  void stop(int number);
  std::string log_of(int rank) const;

  JobOptions options_;
  std::vector<RankPlace> places_;
  std::vector<std::string> command_;
  pid_t parent_;
  LauncherPipe pipe_;
  Signals signals_;
  std::vector<pid_t> ranks_;  // 0: has ended
  int running_ = 0;
  RankFailure failure_;
  int interrupts_ = 0;
  int pressure_ = 0;
  bool ending_ = false;
  std::chrono::steady_clock::time_point failed_;
};

}  // namespace ds
