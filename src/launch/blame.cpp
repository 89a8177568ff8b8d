#include "launch/blame.h"

#include <fmt/core.h>
#include <signal.h>

#include <set>

namespace ds {
namespace {

// Returns the weight of a failure, from the lowest to the highest: SIGTERM, an exit after the loss
// of another rank, any other exit, any other signal.
int weight(const RankFailure& failure) {
  if (failure.by_signal && failure.code == 128 + SIGTERM) return 0;
  if (failure.because_of >= 0) return 1;
  return failure.by_signal ? 3 : 2;
}

}  // namespace

std::string left_alone(int rank, const std::string& on) {
  return fmt::format("rank {}{} exited with code {}, as if stopped, while others went on", rank, on,
                     kStoppedCode);
}

// Follows the chain of lost ranks to its end; `seen` ends the loop in a cycle.
int cause_of(const std::map<int, int>& lost, int rank) {
  std::set<int> seen{rank};
  int cause = -1;
  for (auto at = lost.find(rank); at != lost.end() && seen.insert(at->second).second;
       at = lost.find(cause))
    cause = at->second;
  return cause;
}

// `nearer` is true if the new failure caused the failure that is named so far.
bool Blame::add(const RankFailure& failure) {
  if (failure.because_of >= 0) lost_.emplace(failure.rank, failure.because_of);
  const bool nearer = first_ && weight(failure) == 1 && weight(*first_) == 1 &&
                      first_->because_of == failure.rank &&
                      cause_of(lost_, first_->rank) == failure.because_of;
  if (first_ && weight(failure) <= weight(*first_) && !nearer) return false;
  first_ = failure;
  return true;
}

}  // namespace ds
