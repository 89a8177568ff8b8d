#include "launch/rank.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "launch/no_process.h"

namespace ds {
namespace {

// The words of an exec call; valid while `words` lives.
std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> list;
  for (const std::string& word : words) list.push_back(const_cast<char*>(word.c_str()));
  list.push_back(nullptr);
  return list;
}

// This process's environment with `own` in place of what it has by the same names.
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

// In the child, after fork: only calls that are safe there. Returns errno when the program cannot
// run.
int become(char* const* words, char* const* environment, const StartOptions& options,
           const cpu_set_t* cpus, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, options.death_signal);
  if (getppid() != parent) _exit(1);  // the parent died before prctl
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

Started start_process(const std::vector<std::string>& command,
                      const std::vector<std::string>& variables, const StartOptions& options) {
  std::vector<std::string> environment = environment_with(variables);
  std::vector<char*> words = pointers(command), names = pointers(environment);
  int report[2];  // closed by a successful exec, else carries errno
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
    setpgid(pid, pid);  // whoever of the two comes first
    while (read(report[0], &started.error, sizeof started.error) < 0 && errno == EINTR) continue;
  }
  close(report[0]);
  errno = fork_error;
  if (pid < 0) no_process("fork");
  if (started.error != 0) waitpid(pid, nullptr, 0);
  return started;
}

std::vector<std::string> variables_of(const RankPlace& place) {
  std::vector<std::string> variables = {fmt::format("RANK={}", place.rank),
                                        fmt::format("WORLD_SIZE={}", place.size),
                                        fmt::format("LOCAL_RANK={}", place.local_rank),
                                        fmt::format("LOCAL_SIZE={}", place.local_size),
                                        fmt::format("CROSS_RANK={}", place.cross_rank),
                                        fmt::format("CROSS_SIZE={}", place.cross_size),
                                        fmt::format("DS_COMM_URL={}", place.url),
                                        fmt::format("MASTER_ADDR={}", place.master_host),
                                        fmt::format("MASTER_PORT={}", place.master_port)};
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
