#pragma once
#include <signal.h>

#include <cstdint>
#include <initializer_list>

namespace ds {

// SIGCHLD and the given signals wait to be fetched by next(), for the life of this object; a
// process with one thread.
class Signals {
 public:
  explicit Signals(std::initializer_list<int> numbers);
  ~Signals();  // what is still waiting is dropped
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // The next signal, 0 when none comes within the time.
  int next(int64_t milliseconds);
  const sigset_t& mask() const { return mask_; }  // of the caller

 private:
  sigset_t set_{}, mask_{};
  struct sigaction child_ {};
};

}  // namespace ds
