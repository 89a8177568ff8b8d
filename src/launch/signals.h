#pragma once
#include <signal.h>

#include <cstdint>
#include <initializer_list>

namespace ds {

// A queue of signals. While it exists, SIGCHLD and the given signals are blocked, and next()
// returns them one by one. Only for a process with one thread.
class Signals {
 public:
  explicit Signals(std::initializer_list<int> numbers);
  // Drops pending signals and restores the signal mask.
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Returns the next signal, or 0 if no signal arrives within `milliseconds`.
  int next(int64_t milliseconds);
  // Returns the signal mask from before this object was created.
  const sigset_t& mask() const { return mask_; }

 private:
  sigset_t set_{}, mask_{};
  struct sigaction child_ {};
};

}  // namespace ds
