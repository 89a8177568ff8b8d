#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <regex>

#include "core/base/error.h"
#include "core/base/trace.h"
#include "support/same_bits.h"

namespace ds::test {
namespace {

constexpr int kSteps = 20;

// What a rank process says: a hash, or the message of its error.
struct Report {
  bool ok = false;
  std::string text;
  double seconds = 0;  // from start to report
};

// Runs each rank in a process of its own. kill_rank >= 0: that rank kills itself before an instruction of
// step 3.
std::vector<Report> train_processes(const Point& point, int kill_rank = -1) {
  static int serial = 0;
  std::string url = "shm://test-" + std::to_string(getpid()) + "-" + std::to_string(serial++);
  std::vector<std::pair<pid_t, int>> children;
  int64_t begin = now_ns();
  for (int r = 0; r < point.world; ++r) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      std::string text;
      try {
        CommOptions options;
        options.rank = r;
        options.size = point.world;
        auto comm = create_communicator(url, options);
        size_t count = 0;
        auto hook = [&](size_t) {
          if (r == kill_rank && ++count == 1500) kill(getpid(), SIGKILL);
        };
        text = "+" + train_rank(point, kSteps, *comm, {}, hook).hash;
      } catch (const std::exception& e) {
        text = std::string("-") + e.what();
      }
      (void)!write(ends[1], text.data(), text.size());
      _exit(0);
    }
    close(ends[1]);
    children.emplace_back(pid, ends[0]);
  }
  std::vector<Report> reports;
  for (auto [pid, fd] : children) {
    char text[4096];
    ssize_t got = read(fd, text, sizeof text);
    Report report;
    report.ok = got > 0 && text[0] == '+';
    if (got > 1) report.text.assign(text + 1, static_cast<size_t>(got - 1));
    report.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
    reports.push_back(report);
    close(fd);
    int status = 0;
    waitpid(pid, &status, 0);
  }
  return reports;
}

TEST(Processes, SameBitsAsThreads) {
  Point reference;
  reference.emulate = false;
  std::string hash = train_threads(reference, kSteps).hash;
  Tier tiers[] = {Tier::device, Tier::host, Tier::nvme, Tier::nvme};
  for (int stage = 0; stage <= 3; ++stage) {
    Point p;
    p.stage = stage;
    p.tier = tiers[stage];
    for (const Report& r : train_processes(p))
      EXPECT_TRUE(r.ok && r.text == hash) << p.name() << ": " << r.text;
  }
}

TEST(Processes, FourRanksReproduceOne) {
  Point one;
  one.reproducible = true;
  one.compute = DS_DTYPE_F32;
  one.world = 1;
  Point four = one;
  four.world = 4;
  four.stage = 3;
  std::string hash = train_threads(one, kSteps).hash;
  for (const Report& r : train_processes(four)) EXPECT_TRUE(r.ok && r.text == hash) << r.text;
}

TEST(Processes, ADeadRankEndsTheOthersByName) {
  Point p;
  p.stage = 3;
  std::vector<Report> reports = train_processes(p, 1);
  EXPECT_FALSE(reports[0].ok);
  EXPECT_LT(reports[0].seconds, 5.0) << "the death must be noticed within 5 s";
  std::regex names(
      "rank 0, step instruction [0-9]+ \\((all_gather|reduce_scatter|all_reduce) [^ ]+\\): .*rank 1 is dead");
  EXPECT_TRUE(std::regex_search(reports[0].text, names)) << reports[0].text;
}

}  // namespace
}  // namespace ds::test
