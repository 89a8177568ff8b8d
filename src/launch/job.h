#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/binding.h"
#include "launch/blame.h"
#include "launch/guardian.h"
#include "launch/pressure.h"
#include "launch/rank.h"
#include "launch/signals.h"
#include "launch/watch.h"
#include "machine/host_topology.h"

namespace ds {

// How the ranks of a job on this host end.
struct JobOptions {
  int64_t grace_ms =
      6000;  // after the first failure the other ranks have this long to end by themselves,
  int64_t term_ms = 2000;  // then, after SIGTERM, this long before SIGKILL
  int64_t doubt_ms =
      10000;  // after a rank that was stopped unasked, the others have this long to follow
  Binding binding = Binding::none;
  std::string
      log_dir;  // rank N writes into rank_N.log of this folder; "": where this process writes
  bool append =
      false;  // The logs are those of a job that is started again, and keep what they have.
  // The job is a part of a larger one, whose launcher sends SIGUSR1 for an interrupt and SIGUSR2
  // for a hangup; SIGTERM or the end of the parent says that the larger one ends: then nothing is
  // reported.
  bool part = false;
  // Where the launcher of the larger job gives orders, a letter each; its end is that of the
  // launcher. -1: by signals.
  int orders = -1;
  // An order of any kind comes at least this often, or the launcher cannot be reached any more, as
  // if it had ended. Time in which this process itself stood still does not count.
  int64_t silence_ms = 30000;
  // The daemon of mpirun that started this process; 0 without one. When it cannot reach the
  // launcher any more, the job ends as if the launcher had ended, and the daemon gets SIGTERM.
  pid_t daemon = 0;
};

// Orders. interrupt: as a first Ctrl-C, the second time as a second one. hangup: as a closed
// terminal. end: a rank elsewhere has failed. alive: none.
enum class Order : char { interrupt = 'i', hangup = 'h', end = 'e', alive = 'a' };

// Runs a command once per place and waits for all.
class Job {
 public:
  Job(JobOptions options, std::vector<RankPlace> places, std::vector<std::string> command);
  ~Job();  // kills what runs
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Returns what to say of the rank that failed first; code 0: none; stopped() when ranks were
  // stopped and none has failed. `on_failure` is told of it as soon as it is certain, which is at
  // most a second after the first failure; a part of a larger job, whose launcher compares more of
  // them, is told at once and again when another rank turns out to have failed first.
  template <typename OnFailure>
  RankFailure run(OnFailure on_failure) {
    start_all();
    for (;;) {
      if (news_ && !ending_ && (options_.part || certain())) {
        on_failure(*blame_.first());
        news_ = false;
        told_ = true;
      }
      if (running_ == 0) return blame_.first().value_or(stopped_.value_or(RankFailure{}));
      look();
    }
  }
  // Whether a stop was passed on.
  bool asked() const { return interrupts_ > 0; }

 private:
  void start_all();
  void start(const RankPlace& place);
  void look();
  void obey(int signal_number);
  void take_orders();
  void lose_launcher();
  bool hears_nothing();
  void look_at_daemon();
  void end_with_the_larger_job();
  void collect(size_t index);
  void hear_ranks();
  bool failed() const { return blame_.first().has_value(); }
  bool certain() const;
  void fail(RankFailure failure);
  void doubt_stop();
  void press();
  void stop(int number);
  std::string log_of(int rank) const;

  JobOptions options_;
  HostTopology host_;
  std::vector<RankPlace> places_;
  std::vector<std::string> command_;
  pid_t parent_;
  LauncherPipe pipe_;
  Guardian guardian_{pipe_};
  Signals signals_;
  int64_t memory_kills_before_;
  std::vector<pid_t> ranks_;  // 0: has ended
  int running_ = 0;
  std::map<int, int> lost_;  // a rank, and the first one that it named as lost
  Blame blame_;
  bool news_ = false, told_ = false;    // of blame_
  std::optional<RankFailure> stopped_;  // the first rank that returned kStoppedCode
  StopDoubt doubt_{std::chrono::milliseconds(options_.doubt_ms)};
  int interrupts_ = 0;
  int pressure_ = 0;
  bool ending_ = false;
  std::chrono::steady_clock::time_point looked_{};  // The last look for orders or at the daemon.
  std::chrono::milliseconds silent_{0};
  // Of the first failure, or of the end of the larger job.
  std::chrono::steady_clock::time_point failed_;
};

}  // namespace ds
