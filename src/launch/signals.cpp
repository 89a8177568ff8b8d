#include "launch/signals.h"

#include <ctime>

namespace ds {

Signals::Signals(std::initializer_list<int> numbers) {
  sigemptyset(&set_);
  sigaddset(&set_, SIGCHLD);
  for (int number : numbers) sigaddset(&set_, number);
  struct sigaction normal {};
  normal.sa_handler = SIG_DFL;
  // If this process has inherited SIG_IGN for SIGCHLD, the exit codes of children would be lost.
  sigaction(SIGCHLD, &normal, &child_);
  pthread_sigmask(SIG_BLOCK, &set_, &mask_);
}

Signals::~Signals() {
  // Pending signals must not take effect when the mask is restored.
  while (next(0) != 0) continue;
  pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  sigaction(SIGCHLD, &child_, nullptr);
}

int Signals::next(int64_t milliseconds) {
  timespec limit{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  int number = sigtimedwait(&set_, nullptr, &limit);
  return number < 0 ? 0 : number;
}

}  // namespace ds
