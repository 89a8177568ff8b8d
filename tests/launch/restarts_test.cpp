// Jobs that are restarted: when, how often, on which hosts, and with which messages.
#include "launch/restarts.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launch/local_launch.h"
#include "launch/slurm.h"
#include "support/temp_folder.h"

namespace ds::restarts_test {
namespace {

using test::TempFolder;

struct Outcome {
  int code = 0;
  std::string lines;
};

Outcome outcome_of(const std::function<int()>& call) {
  testing::internal::CaptureStderr();
  int code = call();
  return {code, testing::internal::GetCapturedStderr()};
}

// Runs the script as the ranks of this host, with short waits between restarts. In the script, $1
// is the folder.
Outcome shell(int ranks, int most, const std::string& script, const std::string& folder,
              const std::string& log_dir = "") {
  const LaunchOptions options{
      .ranks = ranks,
      .job = {.grace_ms = 300, .term_ms = 300, .log_dir = log_dir},
      .restarts = {.most = most, .least_ranks = ranks, .first_wait_ms = 10}};
  return outcome_of([&] { return launch(options, {"sh", "-c", script, "sh", folder}); });
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int64_t line_count(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

RankFailure exited(int code, int rank = 1) {
  return {.rank = rank, .code = code, .text = "rank " + std::to_string(rank) + " failed"};
}
RankFailure killed(int number) {
  return {.rank = 1, .code = 128 + number, .by_signal = true, .text = "rank 1 was killed"};
}

// A job whose starts and checks of hosts have the listed results; after the end of a list, all
// succeed.
class Scripted : public Attempts {
 public:
  explicit Scripted(std::vector<RankFailure> ends, std::vector<RanksLeft> looks = {})
      : ends_(std::move(ends)), looks_(std::move(looks)) {}

  JobEnd run(int restart, const Variables&, const OnFailure&) override {
    restarts.push_back(restart);
    if (lives_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(lives_ms));
    if (throws_at == restart) throw std::runtime_error("no more processes");
    return {starts_ < ends_.size() ? ends_[starts_++] : RankFailure{}};
  }
  RanksLeft left() override {
    return looked_ < looks_.size() ? looks_[looked_++] : RanksLeft{4, ""};
  }
  std::string hand_over() override { return elsewhere; }
  void note(int made) override { noted.push_back(made); }

  std::vector<int> restarts, noted;
  int lives_ms = 0, throws_at = -1;
  std::string elsewhere;

 private:
  std::vector<RankFailure> ends_;
  std::vector<RanksLeft> looks_;
  size_t starts_ = 0, looked_ = 0;
};

Outcome run(Scripted& job, RestartOptions options) {
  if (options.first_wait_ms == 1000) options.first_wait_ms = 1;
  return outcome_of([&] { return run_with_restarts(options, job); });
}

TEST(Restarts, ARankThatDiesOnceIsRestarted) {
  TempFolder folder;
  const Outcome outcome = shell(
      2, 3, "echo $DS_RESTART $DS_RUN >> $1/$RANK; [ $RANK$DS_RESTART = 10 ] && kill -9 $$; exit 0",
      folder.path());
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.lines,
            "libds launch: rank 1 was killed by signal 9; restart 1 of 3 on 2 ranks in 0.01 s\n");
  const std::string lines = text_of(folder / "1");
  ASSERT_EQ(line_count(lines), 2) << lines;
  const std::string name = lines.substr(2, lines.find('\n') - 2);
  EXPECT_TRUE(name.starts_with("launch-")) << lines;
  EXPECT_EQ(lines, "0 " + name + "\n1 " + name + "\n");
}

TEST(Restarts, ARankThatAlwaysFailsEndsTheJobWithItsCode) {
  TempFolder folder;
  const Outcome outcome =
      shell(2, 2, "[ $RANK = 1 ] || exit 0; echo start >> $1/starts; exit 7", folder.path());
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.lines,
            "libds launch: rank 1 exited with code 7; restart 1 of 2 on 2 ranks in 0.01 s\n"
            "libds launch: rank 1 exited with code 7; restart 2 of 2 on 2 ranks in 0.02 s\n"
            "libds launch: rank 1 exited with code 7; no restart: all 2 have been made\n");
  EXPECT_EQ(text_of(folder / "starts"), "start\nstart\nstart\n");
}

TEST(Restarts, WithoutRestartsRanksGetNoRestartVariables) {
  TempFolder folder;
  const Outcome outcome = shell(1, 0, "echo \"$DS_RESTART$DS_RUN\" > $1/0; exit 7", folder.path());
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.lines, "libds launch: rank 0 exited with code 7\n");
  EXPECT_EQ(text_of(folder / "0"), "\n");
}

TEST(Restarts, NoProcessSurvivesARestart) {
  TempFolder folder;
  const Outcome outcome =
      shell(2, 1,
            "[ $DS_RESTART = 1 ] && { grep -q '^State:.[^ZX]' /proc/$(cat "
            "$1/child)/status 2> /dev/null && exit 9; exit 0; }; "
            "[ $RANK = 0 ] && { sleep 60 & echo $! > $1/child; touch $1/up; wait; }; "
            "while [ ! -e $1/up ]; do sleep 0.02; done; kill -9 $$",
            folder.path());
  EXPECT_EQ(outcome.code, 0) << outcome.lines;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(Restarts, LogsKeepTheLinesOfEarlierStarts) {
  TempFolder folder;
  const std::string logs = folder / "logs";
  for (int job = 0; job < 2; ++job) {
    shell(1, 1, "echo start $DS_RESTART; [ $DS_RESTART = 1 ] || exit 7", folder.path(), logs);
    EXPECT_EQ(text_of(logs + "/rank_0.log"), "start 0\nstart 1\n");
  }
}

TEST(Restarts, AWrongCommandIsNotRestarted) {
  for (int code : {2, 126, 127, kRefusedCode}) {
    Scripted job({exited(code)});
    const Outcome outcome = run(job, {.most = 3});
    EXPECT_EQ(outcome.code, code);
    EXPECT_EQ(job.restarts.size(), 1u);
    EXPECT_NE(outcome.lines.find("rank 1 failed; no restart: code " + std::to_string(code) +
                                 " says that its " +
                                 (code == kRefusedCode ? "configuration is refused" : "command")),
              std::string::npos)
        << outcome.lines;
  }
}

TEST(Restarts, ARankThatRefusesItsConfigurationEndsTheJobAtOnce) {
  TempFolder folder;
  const Outcome outcome = shell(3, 5, "echo start >> $1/$RANK; exit 78", folder.path());
  EXPECT_EQ(outcome.code, kRefusedCode);
  EXPECT_EQ(text_of(folder / "0"), "start\n");
  EXPECT_EQ(line_count(outcome.lines), 1) << outcome.lines;
}

TEST(Restarts, AStopIsNotRestarted) {
  Scripted job({{.rank = 0, .code = kStoppedCode}});
  const Outcome outcome = run(job, {.most = 3});
  EXPECT_EQ(outcome.code, kStoppedCode);
  EXPECT_EQ(outcome.lines, "");
  EXPECT_EQ(job.restarts.size(), 1u);
}

// Returns the exit code of a launcher that receives SIGINT once the file exists. Its messages are
// written to the file `lines`.
int interrupted_launch(const RestartOptions& restarts, const std::string& script,
                       const std::string& folder) {
  const pid_t pid = fork();
  if (pid == 0) {
    (void)!freopen((folder + "/lines").c_str(), "w", stderr);
    const int code = launch({.ranks = 1, .restarts = restarts}, {"sh", "-c", script, "sh", folder});
    std::fflush(stderr);
    _exit(code);
  }
  for (int i = 0; i < 1000 && text_of(folder + "/up").empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  for (int i = 0; i < 100; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (restarts.first_wait_ms < 10000 || !text_of(folder + "/lines").empty()) break;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  kill(pid, SIGINT);
  int status = 0;
  for (int i = 0; i < 1000 && waitpid(pid, &status, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (kill(pid, SIGKILL) == 0) waitpid(pid, &status, 0);  // it is still running
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Restarts, AnInterruptedJobIsNotRestarted) {
  TempFolder folder;
  const std::string script = "trap 'exit 9' INT; echo up >> $1/up; while :; do sleep 0.05; done";
  EXPECT_EQ(interrupted_launch({.most = 3, .first_wait_ms = 1}, script, folder.path()), 9);
  EXPECT_EQ(text_of(folder / "lines"), "libds launch: rank 0 exited with code 9\n");
  EXPECT_EQ(text_of(folder / "up"), "up\n");
}

TEST(Restarts, AnInterruptEndsTheWait) {
  TempFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(interrupted_launch({.most = 3, .first_wait_ms = 60000}, "echo up >> $1/up; exit 9",
                               folder.path()),
            9);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(text_of(folder / "lines"),
            "libds launch: rank 0 exited with code 9; restart 1 of 3 on 1 rank in 60 s\n"
            "libds launch: stopped before restart 1 of 3\n");
  EXPECT_EQ(text_of(folder / "up"), "up\n");
}

// Returns the waiting times that the messages name.
std::vector<std::string> waits_of(const std::string& lines) {
  std::vector<std::string> waits;
  for (size_t at = 0; (at = lines.find(" ranks in ", at)) != std::string::npos; ++at)
    waits.push_back(lines.substr(at + 10, lines.find('\n', at) - at - 10));
  return waits;
}

TEST(Restarts, WaitsDoubleUpToTheLongest) {
  Scripted job(std::vector<RankFailure>(5, killed(SIGKILL)));
  const RestartOptions options{.most = 9, .first_wait_ms = 10, .longest_wait_ms = 40};
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run(job, options);
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(10 + 20 + 40 + 40 + 40));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(waits_of(outcome.lines),
            (std::vector<std::string>{"0.01 s", "0.02 s", "0.04 s", "0.04 s", "0.04 s"}));
  EXPECT_EQ(job.restarts, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

TEST(Restarts, ALongLivedStartResetsTheWait) {
  Scripted job(std::vector<RankFailure>(3, killed(SIGKILL)));
  job.lives_ms = 30;
  const Outcome outcome = run(job, {.most = 9, .first_wait_ms = 10, .long_ms = 20});
  EXPECT_EQ(waits_of(outcome.lines), (std::vector<std::string>{"0.01 s", "0.01 s", "0.01 s"}));
}

TEST(Restarts, ThreeEqualEarlyFailuresEndTheJob) {
  Scripted job(
      // If several ranks fail with the same error, any of them may be named.
      {exited(1), exited(1, 0), exited(1)});
  const Outcome outcome = run(job, {.most = 9});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(job.restarts.size(), 3u);
  EXPECT_NE(
      outcome.lines.find(
          "rank 1 failed; no restart: 3 starts in a row have ended in this way within 10 s\n"),
      std::string::npos)
      << outcome.lines;
}

TEST(Restarts, DifferentLateOrExternalFailuresAreRestarted) {
  Scripted others({exited(1), exited(1), exited(3), exited(1), exited(1), exited(5)});
  EXPECT_EQ(run(others, {.most = 9}).code, 0);
  Scripted outside(std::vector<RankFailure>(5, killed(SIGKILL)));
  EXPECT_EQ(run(outside, {.most = 9}).code, 0);
  Scripted late(std::vector<RankFailure>(5, exited(1)));
  late.lives_ms = 20;
  EXPECT_EQ(run(late, {.most = 9, .short_ms = 10}).code, 0);
  Scripted crash(std::vector<RankFailure>(5, killed(SIGSEGV)));
  EXPECT_EQ(run(crash, {.most = 9}).code, 128 + SIGSEGV);
}

TEST(Restarts, AnImpossibleRestartIsAFailure) {
  Scripted job({killed(SIGKILL)});
  job.throws_at = 1;
  const Outcome outcome = run(job, {.most = 3});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(
      outcome.lines.find("libds launch: no more processes; restart 2 of 3 on 4 ranks in 0.002 s\n"),
      std::string::npos)
      << outcome.lines;
  Scripted first({});
  first.throws_at = 0;
  EXPECT_THROW(run_with_restarts({.most = 3}, first), std::runtime_error);
}

TEST(Restarts, HostsThatDoNotAnswerAreLeftOut) {
  Scripted job({killed(SIGKILL)}, {{2, "host 'b' does not answer"}});
  const Outcome outcome = run(job, {.most = 3, .least_ranks = 2});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.lines,
            "libds launch: rank 1 was killed; host 'b' does not answer; restart 1 of 3 on 2 ranks "
            "in 0.001 s\n");
}

TEST(Restarts, TooFewRanksAreWaitedFor) {
  const RanksLeft two{2, "host 'b' does not answer"};
  Scripted job({killed(SIGKILL)}, {two, two, {4, ""}});
  Outcome outcome = run(job, {.most = 3, .least_ranks = 4});
  EXPECT_EQ(outcome.code, 0);
  const std::string few =
      "host 'b' does not answer; 2 ranks are left, 4 are needed (--min-ranks); ";
  EXPECT_EQ(outcome.lines, "libds launch: rank 1 was killed; " + few +
                               "next check for restart 1 of 3 in 0.001 s\n" +
                               "libds launch: restart 1 of 3; " + few +
                               "next check for restart 2 of 3 in 0.002 s\n" +
                               "libds launch: restart 2 of 3 on 4 ranks\n");
  EXPECT_EQ(job.restarts, (std::vector<int>{0, 2}));
  Scripted never({killed(SIGKILL)}, std::vector<RanksLeft>(9, two));
  outcome = run(never, {.most = 2, .least_ranks = 4});
  EXPECT_EQ(outcome.code, 137);
  EXPECT_NE(outcome.lines.find(few + "no restart: all 2 have been made\n"), std::string::npos)
      << outcome.lines;
  EXPECT_EQ(never.restarts.size(), 1u);
}

TEST(Restarts, AJobWithTooFewRanksIsRequeued) {
  Scripted job({killed(SIGKILL)}, {{2, "host 'b' is down"}});
  job.elsewhere = "Slurm starts job 7 again when it has hosts for it";
  const Outcome outcome = run(job, {.most = 3, .least_ranks = 4});
  EXPECT_EQ(outcome.code, 137);
  EXPECT_EQ(outcome.lines,
            "libds launch: rank 1 was killed; host 'b' is down; 2 ranks are left, 4 are needed "
            "(--min-ranks); " +
                job.elsewhere + "\n");
}

TEST(Restarts, RestartsOfOuterLaunchersAreCounted) {
  Scripted job(std::vector<RankFailure>(9, killed(SIGKILL)));
  const Outcome outcome = run(job, {.most = 3, .made = 2});
  EXPECT_EQ(outcome.code, 137);
  EXPECT_EQ(job.restarts, (std::vector<int>{2, 3}));
  EXPECT_NE(outcome.lines.find("no restart: all 3 have been made\n"), std::string::npos)
      << outcome.lines;
}

class SlurmNote : public testing::Test {
 protected:
  void SetUp() override {
    before_ = std::filesystem::current_path();
    std::filesystem::current_path(folder_.path());
    setenv("SLURM_JOB_ID", "7", 1);
  }
  void TearDown() override {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT"}) unsetenv(name);
    std::filesystem::current_path(before_);
  }
  static int after(const char* requeues) {
    setenv("SLURM_RESTART_COUNT", requeues, 1);
    return slurm_restarts();
  }

  TempFolder folder_;
  std::filesystem::path before_;
};

TEST_F(SlurmNote, RestartsBeforeARequeueAreCounted) {
  EXPECT_EQ(slurm_restarts(), 0);
  EXPECT_EQ(after("2"), 2);
  unsetenv("SLURM_RESTART_COUNT");
  note_slurm_restarts(3);
  EXPECT_EQ(slurm_restarts(), 3);
  EXPECT_EQ(after("1"), 4);
  // After two more restarts and the requeue.
  note_slurm_restarts(6);
  EXPECT_EQ(after("1"), 6);
  EXPECT_EQ(after("2"), 7);
  setenv("SLURM_JOB_ID", "8", 1);
  EXPECT_EQ(after("1"), 1) << "the note is another job's";
  setenv("SLURM_JOB_ID", "7", 1);
  forget_slurm_restarts();
  EXPECT_TRUE(std::filesystem::is_empty("."));
  EXPECT_EQ(after("2"), 2);
}

TEST_F(SlurmNote, ADamagedNoteIsIgnored) {
  for (const char* text : {"", "x", "3", "1 2", "3 9"}) {
    std::ofstream(".libds-restarts-7") << text;
    EXPECT_EQ(after("1"), 1) << text;
  }
}

TEST_F(SlurmNote, EachRestartIsNoted) {
  Scripted job({killed(SIGKILL), killed(SIGKILL)});
  run(job, {.most = 3, .made = 1});
  EXPECT_EQ(job.noted, (std::vector<int>{2, 3}));
  Scripted few({killed(SIGKILL)}, {{2, "host 'b' is down"}, {2, "host 'b' is down"}, {4, ""}});
  run(few, {.most = 3, .least_ranks = 4});
  EXPECT_EQ(few.noted, (std::vector<int>{1, 2}));
}

TEST(Slurm, TasksPerHostAreParsed) {
  EXPECT_EQ(parse_tasks_per_node("2(x3),1"), (std::vector<int>{2, 2, 2, 1}));
  EXPECT_EQ(parse_tasks_per_node("4"), (std::vector<int>{4}));
  for (const char* text :
       {"", "x", "2(x", "2(x0)", "2,", "2(x2)3", "99999999999", "1(x99999999)"}) {
    try {
      parse_tasks_per_node(text);
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& refusal) {
      EXPECT_EQ(refusal.what(),
                "SLURM_TASKS_PER_NODE must be like 2(x3),1 with numbers up to 4096, got '" +
                    std::string(text) + "'");
    }
  }
}

}  // namespace
}  // namespace ds::restarts_test
