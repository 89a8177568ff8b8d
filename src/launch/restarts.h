#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "launch/blame.h"
#include "launch/env_file.h"

namespace ds {

// Options that say whether and when a failed job is started again (docs/adr/0068).
struct RestartOptions {
  // At most this many restarts. 0: no restart, and ranks do not get DS_RESTART and DS_RUN.
  int most = 0;
  // The job is not started again on fewer ranks than this.
  int least_ranks = 1;
  // The number of restarts before this launcher, which count towards `most`.
  int made = 0;
  // The value of DS_RUN for the ranks, the same for every start; "": a new name.
  std::string name;
  // Waits before restarts. The first wait is first_wait_ms; each later one is twice as long, up to
  // longest_wait_ms. After a start that ran for long_ms, the next wait is first_wait_ms again.
  int64_t first_wait_ms = 1000, longest_wait_ms = 60000, long_ms = 600000;
  // If three consecutive starts fail with the same code, each within this time, the job ends,
  // because restarts do not help. Deaths by SIGKILL or SIGTERM do not count.
  int64_t short_ms = 10000;
};

// How one start of a job ended.
struct JobEnd {
  // The failure to name. Its code is 0 if no rank failed; stopped() is true if ranks were stopped
  // and none failed.
  RankFailure failure;
  // Whether the launcher has forwarded a stop to the ranks.
  bool asked = false;
};

// The ranks that are left for a restart.
struct RanksLeft {
  int ranks = 0;
  // The reasons why hosts cannot be used, in one line; "": all hosts can be used.
  std::string without;
};

using OnFailure = std::function<void(const RankFailure& failure)>;

// A job that can be started several times.
class Attempts {
 public:
  virtual ~Attempts() = default;

  // Runs the job once, on the hosts that the last call of left() found. `more` has additional
  // variables for the ranks; `restart` is 0 for the first start. If a failure is certain before the
  // last rank has ended, run() may call on_failure with it.
  virtual JobEnd run(int restart, const Variables& more, const OnFailure& on_failure) = 0;

  // Determines which hosts can be used now, and returns how many ranks they run.
  virtual RanksLeft left() = 0;

  // Returns a line that says which scheduler can start the job again elsewhere when it has too few
  // ranks left, or "" if there is none.
  virtual std::string heir() { return ""; }
  // Hands the job over to that scheduler, which may end this process at once. Returns false if it
  // does not take the job.
  virtual bool hand_over() { return false; }

  // Records that `made` restarts have been made, including one that is about to begin, for a
  // launcher that starts the job elsewhere.
  virtual void note(int /*made*/) {}
};

// Runs a job and restarts it as the options say. Prints one line on stderr for each failure, which
// says whether and when a restart follows. Returns 0, kStoppedCode, or the code of the last
// failure. An exception of the first start is rethrown; one of a later start counts as a failure.
// Call this in a process with one thread.
int run_with_restarts(const RestartOptions& options, Attempts& attempts);

}  // namespace ds
