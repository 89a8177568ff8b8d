#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "launch/local_launch.h"
#include "launch/pulse.h"
#include "launch/watch.h"
#include "machine/host_topology.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

using test::TempFolder;
using Words = std::vector<std::string>;

struct Outcome {
  int code = 0;
  std::string complaint;
};

Outcome shell(const LaunchOptions& options, const std::string& script, const Words& more = {}) {
  Words words = {"sh", "-c", script, "sh"};
  words.insert(words.end(), more.begin(), more.end());
  testing::internal::CaptureStderr();
  int code = launch(options, words);
  return {code, testing::internal::GetCapturedStderr()};
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool within_ten_seconds(const std::function<bool()>& condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

// Returns whether the process whose id is in the file has ended.
bool has_ended(const std::string& file) {
  std::string state = text_of("/proc/" + std::to_string(std::stoi(text_of(file))) + "/stat");
  return state.empty() || state.find(") Z") != std::string::npos;
}

// Runs launch() in a child process and returns its id once every rank has written its file <rank>
// to the folder.
pid_t launch_beside(const LaunchOptions& options, const std::string& script,
                    const std::string& folder) {
  pid_t pid = fork();
  if (pid == 0) _exit(launch(options, {"sh", "-c", script, "sh", folder}));
  EXPECT_TRUE(within_ten_seconds([&] {
    for (int r = 0; r < options.ranks; ++r) {
      if (text_of(folder + "/" + std::to_string(r)).empty()) return false;
    }
    return true;
  }));
  return pid;
}

int code_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Launch, EveryRankKnowsItsPlace) {
  TempFolder folder;
  setenv("RANK", "stale", 1);
  Outcome outcome =
      shell({.ranks = 3}, "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_SIZE $DS_COMM_URL > $1/$RANK",
            {folder.path()});
  unsetenv("RANK");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.complaint, "");
  std::set<std::string> urls;
  for (int r = 0; r < 3; ++r) {
    std::string line = text_of(folder.path() + "/" + std::to_string(r));
    std::string place = std::to_string(r) + " " + std::to_string(r) + " 3 3 shm://launch-";
    EXPECT_EQ(line.substr(0, place.size()), place);
    urls.insert(line.substr(8));
  }
  EXPECT_EQ(urls.size(), 1u);
}

TEST(Launch, JobsHaveDifferentNames) {
  TempFolder folder;
  shell({.ranks = 1}, "echo $DS_COMM_URL > $1/a", {folder.path()});
  shell({.ranks = 1}, "echo $DS_COMM_URL > $1/b", {folder.path()});
  EXPECT_NE(text_of(folder.path() + "/a"), text_of(folder.path() + "/b"));
}

TEST(Launch, ReturnsTheFirstFailure) {
  TempFolder folder;
  Outcome outcome = shell({.ranks = 3},
                          "[ $RANK = 1 ] && { sleep 0.2; touch $1/x; exit 7; }; while [ ! -e $1/x "
                          "]; do sleep 0.05; done; sleep 0.4; exit 9",
                          {folder.path()});
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.complaint, "libds launch: rank 1 exited with code 7\n");
}

// Rank 0 ends first, but because of rank 1, which takes longer to end.
TEST(Launch, NamesTheRankThatFailedFirst) {
  Outcome outcome = shell({.ranks = 3}, "[ $RANK = 1 ] || exit 1; sleep 0.3; kill -9 $$");
  EXPECT_EQ(outcome.code, 137);
  EXPECT_EQ(outcome.complaint, "libds launch: rank 1 was killed by signal 9\n");
  // bash can write to descriptors above 9, which sh may not.
  std::string lost = "exec bash -c 'printf \"$RANK 1\" >&${DS_LAUNCHER_PIPE%%:*}; exit 1'";
  outcome = shell({.ranks = 3}, "[ $RANK = 1 ] || " + lost + "; sleep 0.3; exit 5");
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.complaint, "libds launch: rank 1 exited with code 5\n");
  outcome = shell({.ranks = 2}, "[ $RANK = 1 ] || " + lost + "; exit 0");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.complaint, "libds launch: rank 0 exited with code 1 after it lost rank 1\n");
  // Rank 0 lost rank 1, which makes no progress, and ended the group; rank 2 was the first to exit.
  outcome = shell({.ranks = 3, .job = {.grace_ms = 300, .term_ms = 300}},
                  "case $RANK in 0) exec bash -c 'printf \"0 1\" >&${DS_LAUNCHER_PIPE%%:*}; sleep "
                  "0.4; exit 1';; 1) sleep 5;; 2) exec bash -c 'sleep 0.2; printf \"2 0\" "
                  ">&${DS_LAUNCHER_PIPE%%:*}; exit 1';; esac");
  EXPECT_EQ(outcome.complaint, "libds launch: rank 2 exited with code 1 after it lost rank 1\n");
}

// Rank 0 fails and blames rank 1, which survives the grace time and then fails because of the
// launcher's SIGTERM. A failure of rank 1 would take precedence, but not one that the launcher
// caused.
TEST(Launch, DoesNotNameARankThatItTerminated) {
  std::string lost = "exec bash -c 'printf \"$RANK 1\" >&${DS_LAUNCHER_PIPE%%:*}; exit 1'";
  std::string slow = "trap 'exit 9' TERM; while :; do sleep 0.05; done";
  for (const std::string& end : {slow, std::string("trap '' TERM; while :; do sleep 0.05; done")}) {
    Outcome outcome = shell({.ranks = 2, .job = {.grace_ms = 300, .term_ms = 300}},
                            "[ $RANK = 1 ] || " + lost + "; " + end);
    EXPECT_EQ(outcome.code, 1);
    std::string line = "libds launch: rank 0 exited with code 1 after it lost rank 1\n";
    // The shell may print other lines.
    EXPECT_NE(outcome.complaint.find(line), std::string::npos) << outcome.complaint;
    EXPECT_EQ(outcome.complaint.find("rank 1 "), std::string::npos) << outcome.complaint;
  }
}

TEST(Launch, EachJobHasItsOwnKey) {
  TempFolder folder;
  for (const char* job : {"a", "b"})
    shell({.ranks = 2}, "echo $DS_JOB_KEY > $1/$2$RANK", {folder.path(), job});
  std::string key = text_of(folder.path() + "/a0");
  EXPECT_EQ(key.size(), 65u);
  EXPECT_EQ(key.find_first_not_of("0123456789abcdef"), 64u);
  EXPECT_EQ(key, text_of(folder.path() + "/a1"));
  EXPECT_NE(key, text_of(folder.path() + "/b0"));
}

// Exit code 75 means that a rank was stopped and has saved. Rank 1 ends long before rank 0, and
// nobody sends an interrupt.
TEST(Launch, AStopIsNotAFailure) {
  Outcome outcome = shell({.ranks = 2}, "[ $RANK = 1 ] || sleep 0.5; exit 75");
  EXPECT_EQ(outcome.code, 75);
  EXPECT_EQ(outcome.complaint, "");
  outcome = shell({.ranks = 2}, "[ $RANK = 1 ] || { sleep 0.3; exit 0; }; exit 75");
  EXPECT_EQ(outcome.code, 75);
  EXPECT_EQ(outcome.complaint, "");
  outcome = shell({.ranks = 2}, "[ $RANK = 1 ] && exit 75; sleep 0.2; exit 3");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.complaint, "libds launch: rank 0 exited with code 3\n");
}

// A program may use exit code 75 with another meaning. The job must not wait forever for a rank
// that itself waits for the rank that exited.
TEST(Launch, AStopOfOneRankOnlyIsAFailure) {
  auto begin = std::chrono::steady_clock::now();
  LaunchOptions options{.ranks = 2, .job = {.grace_ms = 100, .term_ms = 100, .doubt_ms = 100}};
  Outcome outcome =
      shell(options, "[ $RANK = 1 ] && exit 75; trap '' TERM; while :; do sleep 60; done");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.complaint,
            "libds launch: rank 1 exited with code 75, as if stopped, while others went on\n");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

// After the launcher has forwarded an interrupt, saving may take a rank longer than the grace time.
TEST(Launch, AForwardedStopHasTimeToSave) {
  TempFolder folder;
  LaunchOptions options{.ranks = 2, .job = {.grace_ms = 50, .term_ms = 50, .doubt_ms = 50}};
  pid_t pid =
      launch_beside(options,
                    "trap '[ $RANK = 1 ] || sleep 0.7; echo saved > $1/saved$RANK; exit 75' INT; "
                    "echo $$ > $1/$RANK; while :; do sleep 0.05; done",
                    folder.path());
  kill(pid, SIGINT);
  EXPECT_EQ(code_of(pid), 75);
  EXPECT_EQ(text_of(folder.path() + "/saved0"), "saved\n");
}

TEST(Launch, NamesTheSignalOfARank) {
  Outcome outcome = shell({.ranks = 2}, "[ $RANK = 1 ] && kill -9 $$; exit 0");
  EXPECT_EQ(outcome.code, 137);
  EXPECT_EQ(outcome.complaint, "libds launch: rank 1 was killed by signal 9\n");
}

TEST(Launch, NamesACommandThatCannotRun) {
  testing::internal::CaptureStderr();
  int code = launch({.ranks = 2}, {"/nonexistent/program"});
  std::string complaint = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 127);
  EXPECT_EQ(complaint,
            "libds launch: '/nonexistent/program' cannot be run: No such file or directory\n");
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch({.ranks = 1}, {"/"}), 126);
  testing::internal::GetCapturedStderr();
}

TEST(Launch, BindsRanksToCores) {
  HostTopology host = host_topology(false);
  if (!host.absent.empty()) GTEST_SKIP() << "hwloc is not installed";
  TempFolder folder;
  const int ranks = static_cast<int>(host.cores.size()) + 1;
  Outcome outcome = shell({.ranks = ranks, .job = {.binding = Binding::cores}},
                          "grep Cpus_allowed_list /proc/self/status > $1/$RANK; echo $DS_CPU_RANK "
                          "$DS_CPU_RANKS >> $1/$RANK",
                          {folder.path()});
  EXPECT_EQ(outcome.code, 0) << outcome.complaint;
  int sharing = 0;
  for (int r = 0; r < ranks; ++r) {
    const BoundCpus bound = bound_cpus(host, Binding::cores, r, ranks);
    const std::string place = text_of(folder.path() + "/" + std::to_string(r));
    if (bound.cpus.size() == 1) {
      EXPECT_EQ(place, "Cpus_allowed_list:\t" + std::to_string(bound.cpus[0]) + "\n" +
                           std::to_string(bound.sharer) + " " + std::to_string(bound.sharers) +
                           "\n");
    }
    sharing += bound.sharers > 1;
  }
  // There is one rank more than cores, so two ranks share a core.
  EXPECT_EQ(sharing, 2);
}

TEST(Launch, KeepsALogOfEachRank) {
  TempFolder folder;
  std::string logs = folder.path() + "/deep/logs";
  LaunchOptions options{.ranks = 2, .job = {.log_dir = logs}};
  Outcome outcome = shell(options, "echo out $RANK; echo err $RANK >&2; [ $RANK = 0 ] || exit 4");
  EXPECT_EQ(outcome.code, 4);
  EXPECT_EQ(outcome.complaint, "libds launch: rank 1 exited with code 4; its output is in '" +
                                   logs + "/rank_1.log'\n");
  EXPECT_EQ(text_of(logs + "/rank_0.log"), "out 0\nerr 0\n");
  EXPECT_EQ(text_of(logs + "/rank_1.log"), "out 1\nerr 1\n");
  options.job.log_dir = "/proc/no/logs";
  EXPECT_THROW(launch(options, {"true"}), std::system_error);
}

// The path of a rank's log is already a FIFO, a link or another file. The launcher must not wait
// for it, follow it or truncate it.
TEST(Launch, RefusesAForeignFileAsALog) {
  TempFolder folder;
  std::string log = folder.path() + "/rank_0.log", victim = folder.path() + "/victim";
  std::ofstream(victim) << "precious";
  LaunchOptions options{.ranks = 1, .job = {.log_dir = folder.path()}};
  auto start_outcome = [&] {
    try {
      launch(options, {"true"});
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  std::string wanted = "log '" + log + "' must be a regular file with one name";
  ASSERT_EQ(mkfifo(log.c_str(), 0600), 0);
  std::string outcome;
  // Opening it would wait for a reader.
  std::thread starter([&] { outcome = start_outcome(); });
  bool waits = !within_ten_seconds([&] { return !outcome.empty(); });
  int reader = waits ? open(log.c_str(), O_RDONLY | O_NONBLOCK) : -1;
  starter.join();
  if (reader >= 0) close(reader);
  EXPECT_FALSE(waits);
  EXPECT_TRUE(outcome.starts_with("log '" + log + "'")) << outcome;
  std::filesystem::remove(log);
  std::filesystem::create_hard_link(victim, log);
  EXPECT_EQ(start_outcome(), wanted);
  std::filesystem::remove(log);
  std::filesystem::create_symlink(victim, log);
  EXPECT_TRUE(start_outcome().starts_with("log '" + log + "': ")) << start_outcome();
  std::filesystem::remove(log);
  EXPECT_EQ(text_of(victim), "precious");
  EXPECT_EQ(start_outcome(), "accepted");
}

// A failing network does not close connections, so the agent of a launcher that has become silent
// must end its processes by itself.
TEST(Launch, AnAgentDoesNotOutliveASilentLauncher) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const LaunchOptions options{.ranks = 2, .job = {.orders = ends[1], .silence_ms = 1500}};
  {
    Pulse pulse({ends[0]}, std::chrono::milliseconds(50));
    EXPECT_EQ(shell(options, "sleep 2").code, 0);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(shell(options, "trap '' TERM INT; sleep 60; exit 0").code, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  for (int end : ends) close(end);
}

TEST(Launch, RefusesAJobWithoutACommand) {
  EXPECT_THROW(launch({.ranks = 0}, {"true"}), std::invalid_argument);
  EXPECT_THROW(launch({.ranks = 1}, {}), std::invalid_argument);
}

TEST(Launch, KillsRanksThatSurviveTheGraceTime) {
  auto begin = std::chrono::steady_clock::now();
  Outcome outcome = shell({.ranks = 2, .job = {.grace_ms = 100, .term_ms = 100}},
                          "[ $RANK = 0 ] && exit 3; trap '' TERM; while :; do sleep 60; done");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Launch, LeavesNoZombieAndNoGrandchild) {
  TempFolder folder;
  Outcome outcome = shell({.ranks = 2}, "sleep 60 & echo $! > $1/$RANK", {folder.path()});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  for (const char* rank : {"/0", "/1"}) {
    EXPECT_TRUE(within_ten_seconds([&] { return has_ended(folder.path() + rank); }));
  }
}

TEST(Launch, KillingTheLauncherKillsItsRanks) {
  TempFolder folder;
  pid_t pid = launch_beside({.ranks = 2}, "echo $$ > $1/$RANK; exec sleep 60", folder.path());
  kill(pid, SIGKILL);
  EXPECT_EQ(code_of(pid), 137);
  for (const char* rank : {"/0", "/1"}) {
    EXPECT_TRUE(within_ten_seconds([&] { return has_ended(folder.path() + rank); }));
  }
}

// The launcher's ranks are shells, and their children have moved to other process groups and
// sessions.
TEST(Launch, AKilledLauncherLeavesNoProcessOfARank) {
  TempFolder folder;
  pid_t pid = launch_beside(
      {.ranks = 2},
      "sleep 60 & echo $! > $1/child$RANK; setsid sh -c 'echo $$ > $1/far$RANK; sleep 60; :' sh $1 "
      "& while [ ! -s $1/far$RANK ]; do sleep 0.02; done; echo $$ > $1/$RANK; wait",
      folder.path());
  kill(pid, SIGKILL);
  EXPECT_EQ(code_of(pid), 137);
  for (const char* name : {"/0", "/1", "/child0", "/child1", "/far0", "/far1"}) {
    EXPECT_TRUE(within_ten_seconds([&] { return has_ended(folder.path() + name); })) << name;
  }
}

// Appends a word to a file for each SIGINT, and exits with 0 once the file `end` exists.
constexpr const char* kCounting =
    "trap 'echo hit >> $1/hits$RANK' INT; echo $$ > $1/$RANK; "
    "while [ ! -e $1/end ]; do sleep 0.05; done; exit 0";

TEST(Launch, ForwardsAnInterruptOnce) {
  for (int number : {SIGINT, SIGTERM}) {
    TempFolder folder;
    pid_t pid = launch_beside({.ranks = 2}, kCounting, folder.path());
    kill(pid, number);
    EXPECT_TRUE(within_ten_seconds([&] {
      return !text_of(folder.path() + "/hits0").empty() &&
             !text_of(folder.path() + "/hits1").empty();
    }));
    std::ofstream(folder.path() + "/end") << "now";
    EXPECT_EQ(code_of(pid), 0);
    EXPECT_EQ(text_of(folder.path() + "/hits0"), "hit\n");
    EXPECT_EQ(text_of(folder.path() + "/hits1"), "hit\n");
  }
}

TEST(Launch, ForwardsHangupsAsOneTerm) {
  TempFolder folder;
  pid_t pid = launch_beside({.ranks = 2},
                            "trap 'echo term >> $1/hits$RANK' TERM; echo $$ > $1/$RANK; "
                            "while [ ! -e $1/end ]; do sleep 0.05; done; exit 0",
                            folder.path());
  for (const char* expected : {"term\n", "term\n"}) {
    kill(pid, SIGHUP);
    EXPECT_TRUE(within_ten_seconds([&] {
      return text_of(folder.path() + "/hits0") == expected &&
             text_of(folder.path() + "/hits1") == expected;
    }));
  }
  std::ofstream(folder.path() + "/end") << "now";
  EXPECT_EQ(code_of(pid), 0);
  EXPECT_EQ(text_of(folder.path() + "/hits0"), "term\n");
}

TEST(Launch, WatchersEndWithTheLauncher) {
  TempFolder folder;
  std::string errors = folder.path() + "/said";
  pid_t pid = fork();
  if (pid == 0) {
    // The rank has a child that survives it, like libds train below a shell.
    LauncherPipe pipe;
    pid_t child = fork();
    if (child == 0) {
      // Closes the write end, as exec would.
      close(pipe.inherited() + 1);
      putenv(strdup(pipe.variable().c_str()));
      setenv("RANK", "1", 1);
      (void)!freopen(errors.c_str(), "w", stderr);
      watch_launcher();
      std::ofstream(folder.path() + "/watching") << "yes";
      for (;;) pause();
    }
    std::ofstream(folder.path() + "/child") << child << "\n";
    for (;;) pause();
  }
  EXPECT_TRUE(within_ten_seconds([&] {
    return !text_of(folder.path() + "/watching").empty() &&
           !text_of(folder.path() + "/child").empty();
  }));
  EXPECT_EQ(text_of(errors), "");
  kill(pid, SIGKILL);
  EXPECT_EQ(code_of(pid), 137);
  EXPECT_TRUE(within_ten_seconds(
      [&] { return text_of(errors) == "libds: rank 1: the launcher is gone\n"; }));
}

TEST(Launch, ATerminalInterruptIsNotForwardedAgain) {
  TempFolder folder;
  pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    _exit(launch({.ranks = 1}, {"sh", "-c", kCounting, "sh", folder.path()}));
  }
  EXPECT_TRUE(within_ten_seconds([&] { return !text_of(folder.path() + "/0").empty(); }));
  // On Ctrl-C, a terminal sends SIGINT to the whole process group.
  kill(-pid, SIGINT);
  EXPECT_TRUE(within_ten_seconds([&] { return !text_of(folder.path() + "/hits0").empty(); }));
  std::ofstream(folder.path() + "/end") << "now";
  EXPECT_EQ(code_of(pid), 0);
  EXPECT_EQ(text_of(folder.path() + "/hits0"), "hit\n");
}

TEST(Launch, ASecondInterruptKills) {
  TempFolder folder;
  pid_t pid = launch_beside({.ranks = 2}, kCounting, folder.path());
  kill(pid, SIGINT);
  EXPECT_TRUE(within_ten_seconds([&] { return !text_of(folder.path() + "/hits0").empty(); }));
  kill(pid, SIGINT);
  EXPECT_EQ(code_of(pid), 137);
}

}  // namespace
}  // namespace ds
