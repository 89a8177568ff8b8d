#include "launch/watch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "launch/no_process.h"

namespace ds {
namespace {

constexpr const char* kVariable = "DS_LAUNCHER_PIPE";

// Returns "descriptor:inode" if the descriptor is a socket, otherwise "". The inode distinguishes
// the socket from a file that got the same descriptor later.
std::string identity(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return "";
  return fmt::format("{}:{}", fd, status.st_ino);
}

// Waits for the hangup of the socket, which means that the launcher has ended, and ends the
// process.
[[noreturn]] void wait_and_end(int fd) {
  pollfd end{fd, 0, 0};
  while (poll(&end, 1, -1) < 0) continue;
  const char* rank = std::getenv("RANK");
  std::string line = fmt::format("libds: rank {}: the launcher is gone\n", rank ? rank : "unknown");
  (void)!write(STDERR_FILENO, line.data(), line.size());
  _exit(1);
}

}  // namespace

LauncherPipe::LauncherPipe() {
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
}

LauncherPipe::~LauncherPipe() {
  close(ends_[0]);
  close(ends_[1]);
}

std::string LauncherPipe::variable() const {
  return fmt::format("{}={}", kVariable, identity(ends_[0]));
}

std::vector<std::pair<int, int>> LauncherPipe::taken() const {
  std::vector<std::pair<int, int>> pairs;
  char text[32];
  for (ssize_t got; (got = recv(ends_[1], text, sizeof text - 1, MSG_DONTWAIT)) > 0;) {
    text[got] = '\0';
    int rank = -1, culprit = -1;
    if (std::sscanf(text, "%d %d", &rank, &culprit) == 2) pairs.emplace_back(rank, culprit);
  }
  return pairs;
}

void watch_launcher() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr) return;
  int fd = std::atoi(text);
  if (identity(fd) != text) return;
  sigset_t all, before;
  sigfillset(&all);
  // The new thread must not receive signals, which other threads may wait for.
  pthread_sigmask(SIG_BLOCK, &all, &before);
  int error = 0;
  try {
    std::thread(wait_and_end, fd).detach();
  } catch (const std::system_error& refused) {
    error = refused.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  if (error != 0) no_process("a thread");
}

}  // namespace ds
