#include "launch/rank.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "launch/no_process.h"

namespace ds {
namespace {

// Returns the argument array for an exec call; valid as long as `words` is.
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> list;
  for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}

// Returns this process's environment, in which `own` replaces the variables of the same names.
std::vector<std::string> environment_with(const std::vector<std::string>& own) {
  std::vector<std::string> all = own;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view text(*entry);
    bool replaced = false;
    for (const std::string& mine : own) {
      std::string_view name(mine.data(), mine.find('=') + 1);
      replaced |= text.substr(0, name.size()) == name;
    }
    if (!replaced) all.emplace_back(text);
  }
  return all;
}

// Runs in the child after fork(), so it makes only async-signal-safe calls. Returns errno if the
// program cannot be run.
int become(char* const* words, char* const* environment, const StartOptions& options,
           const cpu_set_t* cpus, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, options.death_signal);
  // If the parent has changed, it died before prctl() took effect.
  if (getppid() != parent) _exit(1);
  if (options.pipe != nullptr) fcntl(options.pipe->inherited(), F_SETFD, 0);
  int nothing = options.input >= 0 ? -1 : open("/dev/null", O_RDONLY);
  if (options.input >= 0) dup2(options.input, STDIN_FILENO);
  if (nothing > 0) {
    dup2(nothing, STDIN_FILENO);
    close(nothing);
  }
  if (options.output >= 0) dup2(options.output, STDOUT_FILENO);
  if (options.errors >= 0) dup2(options.errors, STDERR_FILENO);
  if (cpus != nullptr && sched_setaffinity(0, sizeof *cpus, cpus) != 0) return errno;
  pthread_sigmask(SIG_SETMASK, &options.mask, nullptr);
  execvpe(words[0], words, environment);
  return errno;
}

}  // namespace

// The child reports the errno of a failed exec over a pipe that closes on exec, so the parent knows
// when the program is running.
Started start_process(const std::vector<std::string>& command,
                      const std::vector<std::string>& variables, const StartOptions& options) {
  std::vector<std::string> environment = environment_with(variables);
  std::vector<char*> words = pointers(command), names = pointers(environment);
  // A successful exec closes the writing end; after a failed one, the child writes errno.
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) no_process("pipe");
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int cpu : options.cpus) CPU_SET(cpu, &cpus);
  pid_t parent = getpid();
  pid_t pid = fork();
  if (pid == 0) {
    int error =
        become(words.data(), names.data(), options, options.cpus.empty() ? nullptr : &cpus, parent);
    (void)!write(report[1], &error, sizeof error);
    _exit(127);
  }
  int fork_error = errno;
  close(report[1]);
  Started started{pid, 0};
  if (pid > 0) {
    // The child makes the same call. Whichever is first, the group exists when either process
    // continues.
    setpgid(pid, pid);
    while (read(report[0], &started.error, sizeof started.error) < 0 && errno == EINTR) continue;
  }
  close(report[0]);
  errno = fork_error;
  if (pid < 0) no_process("fork");
  if (started.error != 0) waitpid(pid, nullptr, 0);
  return started;
}

namespace {

// Returns DS_OUTER_LAUNCHERS, which has the variables that other launchers have set for this
// process, as NAME=VALUE words. A rank inherits these variables, but they do not describe the ranks
// (comm/environment.h). If a rank finds other variables or other values, they were set by a
// launcher that the rank's command has started.
std::string outer_launchers() {
  std::string words;
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "PMI_SIZE", "PMI_RANK", "PMIX_RANK",
        "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS", "FLUX_JOB_SIZE",
        "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0')
      words += fmt::format("{}{}={}", words.empty() ? "" : " ", name, value);
  }
  return "DS_OUTER_LAUNCHERS=" + words;
}

}  // namespace

std::vector<std::string> variables_of(const RankPlace& place) {
  std::vector<std::string> variables = {fmt::format("RANK={}", place.rank),
                                        fmt::format("WORLD_SIZE={}", place.size),
                                        fmt::format("LOCAL_RANK={}", place.local_rank),
                                        fmt::format("LOCAL_SIZE={}", place.local_size),
                                        fmt::format("CROSS_RANK={}", place.cross_rank),
                                        fmt::format("CROSS_SIZE={}", place.cross_size),
                                        fmt::format("DS_COMM_URL={}", place.url),
                                        fmt::format("MASTER_ADDR={}", place.master_host),
                                        fmt::format("MASTER_PORT={}", place.master_port),
                                        outer_launchers()};
  if (!place.key.empty()) variables.push_back("DS_JOB_KEY=" + place.key);
  for (const auto& [name, value] : place.more) variables.push_back(name + "=" + value);
  return variables;
}

std::string fresh_secret() {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) no_process("getrandom");
  std::string text;
  for (unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::string fresh_url() {
  return fmt::format("shm://launch-{}-{}", getpid(), fresh_secret().substr(0, 16));
}

}  // namespace ds
