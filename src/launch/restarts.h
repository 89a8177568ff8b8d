#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "launch/blame.h"
#include "launch/env_file.h"

namespace ds {

// Whether and when a job that has failed is started again (docs/adr/0068).
struct RestartOptions {
  // How many restarts there may be. 0: none, and ranks do not learn of restarts.
  int most = 0;
  // The job is not started again on fewer ranks than this.
  int least_ranks = 1;
  // How many of the restarts have been made already, by others.
  int made = 0;
  // What ranks find in DS_RUN, the same for every start; "": a fresh name.
  std::string name;
  // The wait before a restart: the first one, and each is twice the one before up to the longest.
  // After a start that lived for `long_ms` the next wait is the first one again.
  int64_t first_wait_ms = 1000, longest_wait_ms = 60000, long_ms = 600000;
  // Three starts in a row that failed with the same code within this time: a restart is no help.
  int64_t short_ms = 10000;
};

// How one start of a job ended.
struct JobEnd {
  RankFailure failure;  // code 0: none; stopped(): none, but the ranks were stopped
  bool asked = false;   // The launcher has passed a stop on.
};

// What a restart would run on.
struct RanksLeft {
  int ranks = 0;
  std::string without;  // why hosts are left out, one line; "": none is
};

using OnFailure = std::function<void(const RankFailure& failure)>;

// A job that can be started several times.
class Attempts {
 public:
  virtual ~Attempts() = default;

  // Runs the job once, where left() has said last. `more`: variables for the ranks; `restart`: 0 at
  // first. A start that knows its failure before the last rank has ended may call on_failure with
  // it.
  virtual JobEnd run(int restart, const Variables& more, const OnFailure& on_failure) = 0;

  // Looks which hosts can be used now.
  virtual RanksLeft left() = 0;

  // Hands the job, too few of whose ranks are left, to somebody who starts it again elsewhere.
  // Returns who that is, or "" where there is nobody.
  virtual std::string hand_over() { return ""; }
};

// Runs a job, and again as the options have it. Prints one line on stderr for each failure, which
// says what comes of it. Returns 0, kStoppedCode, or the code of the last failure. What the first
// start throws is thrown; later it is a failure. Call it in a process with one thread.
int run_with_restarts(const RestartOptions& options, Attempts& attempts);

}  // namespace ds
