#include "launch/pulse.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "launch/job.h"
#include "launch/no_process.h"

namespace ds {
namespace {

// Closes all descriptors except those given, which need not be in order.
void close_all_but(std::vector<int> kept) {
  std::ranges::sort(kept);
  unsigned first = 0;
  for (int fd : kept) {
    if (static_cast<unsigned>(fd) > first) close_range(first, static_cast<unsigned>(fd) - 1, 0);
    first = static_cast<unsigned>(fd) + 1;
  }
  close_range(first, ~0U, 0);
}

[[noreturn]] void beat(const std::vector<int>& orders, std::chrono::milliseconds every,
                       pid_t launcher) {
  // A new session keeps a terminal from suspending this process.
  setsid();
  prctl(PR_SET_NAME, "libds-pulse");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  close_all_but(orders);
  const char letter = static_cast<char>(Order::alive);
  // The launcher may have ended before PR_SET_PDEATHSIG took effect, so the parent is checked in
  // the loop, too.
  while (getppid() == launcher) {
    for (int fd : orders) (void)!send(fd, &letter, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    poll(nullptr, 0, static_cast<int>(every.count()));
  }
  _exit(0);
}

}  // namespace

Pulse::Pulse(const std::vector<int>& orders, std::chrono::milliseconds every) {
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ == 0) beat(orders, every, launcher);
  if (pid_ < 0) no_process("fork");
}

Pulse::~Pulse() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace ds
