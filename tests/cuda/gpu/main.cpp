// Problem: the first minutes on a real GPU must reveal as much as possible, but after a device
// fault a process can no longer use the device. Therefore this process never opens the device. It
// forks children that open it, and each check writes a line to the file when it ends. If a fault, a
// signal or the time limit of a check ends a child, another child continues with the next check, so
// a failing check costs at most its time limit and one start.
//
//  gpu_check PART FILE [--group G] [--only CHECK]... [--device cuda:0] [--limit SECONDS]
//  [--check-limit SECONDS] [--small] [--here]
//
// PART: A, B, C or all. --here: runs the checks in this process, for compute-sanitizer. The exit
// code is 0 if all checks pass.
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/trace.h"
#include "cuda/gpu/check.h"

namespace ds::test {
namespace {

struct Job {
  std::string part, file, group, device = "cuda:0";
  // Names of the checks to run. If empty, all checks run.
  std::vector<std::string> only;
  double limit = 400, check_limit = 90;
  bool small = false, here = false;
};

// The child's progress, which the parent reads.
struct Place {
  // The index of the running check or, between checks, of the next one.
  std::atomic<size_t> check{0};
  // The start time of the check, or 0 if no check is running.
  std::atomic<int64_t> begin_ns{0};
  std::atomic<int> failed{0};
};

double since(int64_t begin_ns) { return static_cast<double>(now_ns() - begin_ns) * 1e-9; }

class Lines {
 public:
  explicit Lines(const std::string& file)
      : file_(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644)) {
    ensure(file_ >= 0, "{}: {}", file, std::strerror(errno));
  }
  // Writes the line of a check. `members` is text with further members of the JSON object, or "".
  void write(const Check& check, const std::string& status, double seconds,
             const std::string& members) {
    Json out;
    out.set("part", check.part);
    out.set("group", check.group);
    out.set("check", check.name);
    out.set("status", status);
    out.set("compares", check.compares);
    out.set("seconds", std::round(seconds * 1000) / 1000);
    std::string line = out.dump();
    if (!members.empty()) line = line.substr(0, line.size() - 1) + ", " + members + "}";
    line += "\n";
    ensure(::write(file_, line.data(), line.size()) == static_cast<ssize_t>(line.size()),
           "a short write");
    fmt::print("{} {} {:12} {:32} {:.1f} s\n", status, check.part, check.group, check.name,
               seconds);
    if (status != "pass") fmt::print("    {}\n", members);
    std::fflush(stdout);
  }
  void text(const Check& check, const std::string& status, double seconds,
            const std::string& text) {
    write(check, status, seconds, "\"text\": " + Json(text).dump());
  }

 private:
  int file_;
};

// Runs the checks from place.check on. Returns true when all have ended, or false if the device is
// gone.
bool run_checks(const std::vector<Check>& checks, const Job& job, Place& place, Lines& lines) {
  Session session(job.device, job.small);
  for (size_t i = place.check; i < checks.size(); place.check = ++i) {
    const int64_t begin = now_ns();
    place.begin_ns = begin;
    Report report(session);
    bool gone = false;
    std::string status;
    try {
      checks[i].body(session, report);
    } catch (const DeviceIsGone&) {
      gone = true;
    } catch (const std::exception& error) {
      status = "error";
      report.note(error.what());
      gone = !session.works();
    }
    if (status.empty()) status = report.passed() && !gone ? "pass" : "fail";
    if (gone) report.note("the device does not work any more; the next check has a new process");
    if (status != "pass") ++place.failed;
    lines.write(checks[i], status, since(begin), report.members());
    place.begin_ns = 0;
    if (gone) {
      ++place.check;
      return false;
    }
  }
  return true;
}

// Waits for the child, and kills it with a reason if its check, or all of them, take too long.
// Returns "" and sets *status if the child ended by itself, or else the reason.
std::string watch(pid_t child, const Job& job, const Place& place, int64_t begin, int* status) {
  for (;;) {
    if (waitpid(child, status, WNOHANG) == child) return "";
    const int64_t check = place.begin_ns;
    std::string reason;
    if (check != 0 && since(check) > job.check_limit)
      reason = fmt::format("took more than {:.0f} s", job.check_limit);
    if (since(begin) > job.limit)
      reason = fmt::format("the part took more than {:.0f} s", job.limit);
    if (!reason.empty()) {
      kill(child, SIGKILL);
      waitpid(child, status, 0);
      return reason;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

int run(const Job& job) {
  std::vector<Check> all, checks;
  add_memory_checks(all);
  add_kernel_checks(all, job.small);
  add_training_checks(all, job.small);
  add_speed_checks(all, job.small);
  for (Check& check : all) {
    if ((job.part == "all" || check.part == job.part) &&
        (job.group.empty() || check.group == job.group) &&
        (job.only.empty() ||
         std::find(job.only.begin(), job.only.end(), check.name) != job.only.end()))
      checks.push_back(std::move(check));
  }
  Lines lines(job.file);
  void* shared =
      mmap(nullptr, sizeof(Place), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ensure(shared != MAP_FAILED, "no shared memory");
  Place& place = *new (shared) Place;
  if (job.here) {
    while (!run_checks(checks, job, place, lines)) continue;
    return place.failed == 0 ? 0 : 1;
  }
  const int64_t begin = now_ns();
  while (place.check < checks.size()) {
    if (since(begin) > job.limit) {
      for (size_t i = place.check; i < checks.size(); ++i)
        lines.text(checks[i], "not run", 0, "the time of the part was over");
      return 1;
    }
    const pid_t child = fork();
    ensure(child >= 0, "no process: {}", std::strerror(errno));
    if (child == 0) {
      run_checks(checks, job, place, lines);
      std::fflush(stdout);
      // With a driver in a bad state, a normal exit may hang.
      _exit(0);
    }
    int status = 0;
    std::string reason = watch(child, job, place, begin, &status);
    const int64_t check = place.begin_ns;
    // The child ended on purpose between two checks.
    if (check == 0) continue;
    if (reason.empty())
      reason = WIFSIGNALED(status) ? fmt::format("ended by signal {}", WTERMSIG(status))
                                   : "its process ended";
    lines.text(checks[place.check], "error", since(check), reason);
    place.begin_ns = 0;
    ++place.failed;
    ++place.check;
  }
  return place.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace ds::test

int main(int argc, char** argv) {
  ds::test::Job job;
  CLI::App app("Checks of a device against the CPU's reference");
  app.add_option("part", job.part)->required()->check(CLI::IsMember({"A", "B", "C", "all"}));
  app.add_option("file", job.file, "A line of JSON for each check is added to it")->required();
  app.add_option("--group", job.group);
  app.add_option("--only", job.only, "Names of checks");
  app.add_option("--device", job.device);
  app.add_option("--limit", job.limit, "Seconds of all checks");
  app.add_option("--check-limit", job.check_limit, "Seconds of one check");
  app.add_flag("--small", job.small, "Sizes for a device in software");
  app.add_flag("--here", job.here, "In this process");
  CLI11_PARSE(app, argc, argv);
  try {
    return ds::test::run(job);
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_check: {}\n", error.what());
    return 2;
  }
}
