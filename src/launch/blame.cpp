#include "launch/blame.h"

#include <fmt/core.h>
#include <signal.h>

namespace ds {
namespace {

int weight(const RankFailure& failure) {
  if (failure.by_signal && failure.code == 128 + SIGTERM) return 0;
  if (failure.because_of >= 0) return 1;
  return failure.by_signal ? 3 : 2;
}

}  // namespace

std::string left_alone(int rank, const std::string& on) {
  return fmt::format("rank {}{} exited with code {}, as one that was stopped, and others went on", rank, on,
                     kStoppedCode);
}

bool Blame::add(const RankFailure& failure) {
  if (first_ && weight(failure) <= weight(*first_)) return false;
  first_ = failure;
  return true;
}

}  // namespace ds
