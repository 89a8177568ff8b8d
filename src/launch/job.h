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

// Options of a job on this host.
struct JobOptions {
  // After the first failure, the other ranks have this long to end by themselves.
  int64_t grace_ms = 6000;
  // Time between SIGTERM and SIGKILL.
  int64_t term_ms = 2000;
  // After a rank has ended with kStoppedCode without a request to stop, the others have this long
  // to end with it or with 0.
  int64_t doubt_ms = 10000;
  Binding binding = Binding::none;
  // Rank N writes to rank_N.log in this folder; "": to this process's standard output and error.
  std::string log_dir;
  // Whether to append to existing logs, because the job is a restart.
  bool append = false;
  // Whether the job is a part of a larger job. The launcher of the larger job sends SIGUSR1 for an
  // interrupt and SIGUSR2 for a hangup. SIGTERM, SIGINT, SIGHUP or the end of the parent process
  // means that the larger job ends; failures after that are not reported.
  bool part = false;
  // A descriptor from which to read the orders of the larger job's launcher, one letter each; the
  // end of the stream means the end of the launcher. -1: orders come by signals.
  int orders = -1;
  // If no order of any kind arrives for this long, the launcher counts as ended. Time in which this
  // process itself was stopped is not included.
  int64_t silence_ms = 30000;
  // The daemon of mpirun that started this process; 0: the starter is not mpirun. If the daemon can
  // no longer reach the launcher, the job ends as if the launcher had ended, and the daemon gets
  // SIGTERM.
  pid_t daemon = 0;
};

// Orders of the larger job's launcher. interrupt: the launcher has received SIGINT or SIGTERM, for
// the first or the second time. hangup: the terminal was closed. end: the ranks must end, for
// example because a rank on another host has failed. alive: the launcher is running; nothing to do.
enum class Order : char { interrupt = 'i', hangup = 'h', end = 'e', alive = 'a' };

// A job on this host, which runs a command once per place and waits for all ranks.
class Job {
 public:
  Job(JobOptions options, std::vector<RankPlace> places, std::vector<std::string> command);
  // Kills the ranks that are still running.
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Runs the job and returns the failure of the rank that failed first. The code of the failure is
  // 0 if no rank failed; stopped() is true if ranks were stopped and none failed. Calls
  // `on_failure` with the failure as soon as it is certain, at most a second after the first one. A
  // part of a larger job calls it at once, and again if another rank turns out to have failed
  // first, because the launcher compares the failures of all parts.
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
  // Returns whether a stop was forwarded to the ranks.
  bool asked() const { return interrupts_ > 0; }

 private:
  void start_all();
  void start(const RankPlace& place);
  // Runs one turn of the loop: handles signals and orders, collects ranks that have ended, and ends
  // the remaining ones after a failure.
  void look();
  void obey(int signal_number);
  void take_orders();
  // Kills the ranks, because the launcher of the larger job has ended.
  void lose_launcher();
  // Returns whether no order has arrived for silence_ms.
  bool hears_nothing();
  void look_at_daemon();
  // Begins to end the job, without reporting a failure.
  void end_with_the_larger_job();
  // If a rank has ended, handles its exit code and kills the processes that are left in its process
  // group.
  void collect(size_t index);
  // Reads the reports of ranks that have lost another rank.
  void hear_ranks();
  bool failed() const { return blame_.first().has_value(); }
  // Returns whether the failure to name is certain: all failures that the first one caused must
  // have been seen.
  bool certain() const;
  void fail(RankFailure failure);
  // If a rank has stopped without a request and the others do not follow in time, counts it as
  // failed.
  void doubt_stop();
  // Ends the ranks that are left after a failure: first waits, then sends SIGTERM, then SIGKILL.
  void press();
  // Sends a signal to the process groups of all running ranks.
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
  // Process ids of the ranks; 0: the rank has ended.
  std::vector<pid_t> ranks_;
  int running_ = 0;
  // Maps a rank to the first rank that it reported as lost.
  std::map<int, int> lost_;
  Blame blame_;
  // Whether `blame_` has a failure that was not reported yet, and whether one was reported.
  bool news_ = false, told_ = false;
  // The first rank that returned kStoppedCode.
  std::optional<RankFailure> stopped_;
  StopDoubt doubt_{std::chrono::milliseconds(options_.doubt_ms)};
  // Number of interrupts and hangups received, and number of signals sent to the ranks after a
  // failure.
  int interrupts_ = 0;
  int pressure_ = 0;
  bool ending_ = false;
  // Time of the last check for orders or of the daemon.
  std::chrono::steady_clock::time_point looked_{};
  // The time for which no order has arrived.
  std::chrono::milliseconds silent_{0};
  // Time of the first failure or of the end of the larger job.
  std::chrono::steady_clock::time_point failed_;
};

}  // namespace ds
