#pragma once
#include <signal.h>

#include <cerrno>
#include <ctime>
#include <initializer_list>

namespace ds {

// A write into a closed pipe raises SIGPIPE, and one beyond RLIMIT_FSIZE raises SIGXFSZ. Both end
// the process by default. Only the host application may change that: a library never changes a
// signal's disposition. So the thread that writes blocks both signals. The write then fails with
// EPIPE or EFBIG, and the signal, which the kernel sends to this thread alone, is consumed before
// the mask is restored. A signal that was pending before stays pending. The cost is four system
// calls.
class SignalsBlocked {
 public:
  enum class Which {
    // SIGPIPE and SIGXFSZ.
    of_writes,
    // All signals. Threads that are started meanwhile inherit the mask and keep it.
    all,
  };

  explicit SignalsBlocked(Which which) {
    sigset_t blocked = of_writes(), pending;
    if (which == Which::all) sigfillset(&blocked);
    sigpending(&pending);
    for (int number : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, number) == 1) sigdelset(&mine_, number);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }

  ~SignalsBlocked() {
    // The caller still needs the errno of its write.
    int error = errno;
    timespec now{};
    while (sigtimedwait(&mine_, nullptr, &now) > 0) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }

  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  static sigset_t of_writes() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigaddset(&set, SIGXFSZ);
    return set;
  }

  sigset_t before_{};
  // The signals to consume: SIGPIPE and SIGXFSZ, unless pending when the object was constructed.
  sigset_t mine_ = of_writes();
};

}  // namespace ds
