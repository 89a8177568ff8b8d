#include "compile/schedule.h"

#include <fmt/core.h>

#include <cstdint>
#include <string>

#include "core/base/error.h"

namespace ds {

std::vector<Action> accumulate_in_turn(int32_t micros) {
  std::vector<Action> out;
  for (MicroId m(0); m < MicroId(micros); ++m) {
    out.push_back({Action::Kind::forward, 0, m});
    out.push_back({Action::Kind::backward, 0, m});
  }
  return out;
}

// Throws for an invalid schedule. `begun` marks the micro-steps whose forward has been seen; their
// backwards must be in order, so a count of these suffices.
void check_schedule(std::span<const Action> schedule, int32_t micros) {
  IdVector<MicroId, char> begun(static_cast<size_t>(micros), 0);
  // The micro-step whose backward must come next, which is also the number of backwards so far.
  MicroId done(0);
  for (const Action& a : schedule) {
    const bool forward = a.kind == Action::Kind::forward;
    std::string here = fmt::format("the schedule's {} of chunk {} in micro-step {}",
                                   forward ? "forward" : "backward", a.chunk, a.micro);
    ensure(a.chunk == 0 && begun.has(a.micro), "{} is not among {} micro-steps of 1 chunk", here,
           micros);
    if (forward) {
      ensure(!begun[a.micro], "{} appears twice", here);
      begun[a.micro] = 1;
      continue;
    }
    ensure(begun[a.micro], "{} comes before its forward", here);
    ensure(a.micro == done, "{} comes where micro-step {} is due", here, done);
    ++done;
  }
  ensure(done == MicroId(micros), "the schedule has the backward of {} of {} micro-steps", done,
         micros);
}

}  // namespace ds
