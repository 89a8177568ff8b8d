#include "support/processes.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "core/base/trace.h"

namespace ds::test {
namespace {

// Trains as one rank. Returns "+" and the hashes, or "-" and the error message.
std::string train_child(const Point& point, int steps, int rank, const std::string& url,
                        size_t kill_at) {
  try {
    CommOptions options;
    options.rank = rank;
    options.size = point.world;
    std::unique_ptr<Communicator> comm = create_communicator(url, options);
    size_t count = 0;
    auto hook = [&](size_t) {
      if (++count == kill_at) kill(getpid(), SIGKILL);
    };
    return "+" + train_rank(point, steps, *comm, {}, hook).bits();
  } catch (const std::exception& error) {
    return std::string("-") + error.what();
  }
}

std::string read_all(int fd) {
  std::string text;
  char part[4096];
  while (true) {
    ssize_t got = read(fd, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(part, static_cast<size_t>(got));
  }
}

struct Child {
  pid_t pid = -1;
  // The pipe through which the process reports.
  int fd = -1;
};

std::vector<RankReport> fork_ranks(const Point& point, int steps, const std::string& url,
                                   int kill_rank, size_t kill_at) {
  std::vector<Child> children;
  int64_t begin = now_ns();
  for (int r = 0; r < point.world; ++r) {
    int ends[2];
    if (pipe(ends) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    pid_t pid = fork();
    if (pid < 0) throw std::system_error(errno, std::generic_category(), "fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(ends[0]);
      std::string text = train_child(point, steps, r, url, r == kill_rank ? kill_at : 0);
      (void)!write(ends[1], text.data(), text.size());
      _exit(0);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  std::vector<RankReport> reports;
  for (const Child& child : children) {
    std::string text = read_all(child.fd);
    RankReport report;
    report.ok = text.starts_with('+');
    if (!text.empty()) report.text = text.substr(1);
    report.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    reports.push_back(report);
    ::close(child.fd);
    waitpid(child.pid, nullptr, 0);
  }
  return reports;
}

}  // namespace

std::vector<RankReport> train_processes(const Point& point, int steps, int kill_rank,
                                        size_t kill_at) {
  static std::atomic<int> serial{0};
  return fork_ranks(point, steps, fmt::format("shm://test-{}-{}", getpid(), serial++), kill_rank,
                    kill_at);
}

std::vector<RankReport> train_processes(const Point& point, int steps, const std::string& url,
                                        int kill_rank, size_t kill_at) {
  return fork_ranks(point, steps, url, kill_rank, kill_at);
}

}  // namespace ds::test
