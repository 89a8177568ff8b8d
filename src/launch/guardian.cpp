// The guardian reads from a pipe of the launcher: a byte means that the launcher ends normally, and
// the end of the stream means that it was killed. In the latter case the guardian searches /proc
// for processes whose environment has the launcher's mark, which every process that a rank has
// started inherits.

#include "launch/guardian.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "launch/no_process.h"

namespace ds {
namespace {

constexpr int kMostLooks = 500;
constexpr useconds_t kPauseUs = 20'000;

// Returns the environment of a process from /proc, with a zero byte before each variable; only one
// zero byte if it cannot be read.
std::string environment_of(const std::string& process) {
  std::string text(1, '\0');
  int fd = open(("/proc/" + process + "/environ").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char part[4096];
  for (ssize_t got = 1; got > 0;) {
    got = read(fd, part, sizeof part);
    if (got > 0) text.append(part, static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

// Kills the process if its environment has the mark; returns whether it has. The pidfd is opened
// first, so that no other process that gets the same process id later can be killed.
bool kill_marked(const std::string& process, const std::string& mark) {
  pid_t pid = std::atoi(process.c_str());
  if (pid <= 0 || pid == getpid()) return false;
  int fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (fd < 0) return false;
  bool marked = environment_of(process).find('\0' + mark + '\0') != std::string::npos;
  if (marked) syscall(SYS_pidfd_send_signal, fd, SIGKILL, nullptr, 0);
  close(fd);
  return marked;
}

// Kills every process with the mark; returns whether there was one.
bool kill_all_marked(const std::string& mark) {
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return false;
  bool any = false;
  while (const dirent* entry = readdir(folder)) any |= kill_marked(entry->d_name, mark);
  closedir(folder);
  return any;
}

// Runs the guardian's process. It waits for the end of the launcher, then kills marked processes
// until two consecutive scans have found none, in at most kMostLooks scans: a process that is just
// executing another program has no readable environment at that moment.
[[noreturn]] void guard(int control, const LauncherPipe& pipe, std::chrono::seconds patience) {
  // A new session keeps signals of the terminal and of process groups from ending the guardian.
  setsid();
  prctl(PR_SET_NAME, "libds-guard");
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing, fd);
  // The launcher's pipe stays open only so that its descriptor, which is in the mark, is not used
  // for another file.
  int kept[] = {control, pipe.inherited()};
  std::sort(kept, kept + 2);
  close_range(3, static_cast<unsigned>(kept[0] - 1), 0);
  if (kept[1] > kept[0] + 1)
    close_range(static_cast<unsigned>(kept[0] + 1), static_cast<unsigned>(kept[1] - 1), 0);
  close_range(static_cast<unsigned>(kept[1] + 1), ~0U, 0);
  char done;
  ssize_t got;
  while ((got = read(control, &done, 1)) < 0 && errno == EINTR) continue;
  if (got == 1) _exit(0);
  sleep(static_cast<unsigned>(patience.count()));
  std::string mark = pipe.variable();
  for (int look = 0, none = 0; look < kMostLooks && none < 2; ++look) {
    none = kill_all_marked(mark) ? 0 : none + 1;
    usleep(kPauseUs);
  }
  _exit(0);
}

}  // namespace

Guardian::Guardian(const LauncherPipe& pipe, std::chrono::seconds patience) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  control_ = ends[1];
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    guard(ends[0], pipe, patience);
  }
  int error = errno;
  close(ends[0]);
  if (pid_ > 0) return;
  close(control_);
  errno = error;
  no_process("fork");
}

Guardian::~Guardian() {
  char done = 'd';
  (void)!write(control_, &done, 1);
  close(control_);
  waitpid(pid_, nullptr, 0);
}

}  // namespace ds
