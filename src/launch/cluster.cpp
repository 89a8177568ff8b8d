// This file launches a job over several hosts. mpirun or srun starts an agent per rank, or ssh one
// per host (ssh_job.cpp), and each agent runs its ranks as a separate part of the job (agent.cpp).
// mpirun and srun forward SIGUSR1 and SIGUSR2 to the agents, but act on SIGINT and SIGTERM
// themselves. Their exit codes do not say which rank failed first, so the agents report failures as
// records within standard error, and the launcher compares the records.

#include "launch/cluster.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "launch/blame.h"
#include "launch/env_file.h"
#include "launch/failure_report.h"
#include "launch/guardian.h"
#include "launch/hostfile.h"
#include "launch/port.h"
#include "launch/pressure.h"
#include "launch/process.h"
#include "launch/rank.h"
#include "launch/restarts.h"
#include "launch/signals.h"
#include "launch/slurm.h"
#include "launch/ssh.h"
#include "launch/ssh_job.h"
#include "launch/strings.h"
#include "launch/watch.h"
#include "launch/world_map.h"

namespace ds {
namespace {

// The default port of torch and DeepSpeed.
constexpr int kUsualPort = 29500;

// Host names become words of command lines, so only harmless characters are allowed.
void require_host_name(const std::string& name) {
  constexpr const char* kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (name.empty() || name[0] == '-' || name.find_first_not_of(kAllowed) != std::string::npos) {
    throw std::invalid_argument(fmt::format(
        "host '{}': must be a name or an IPv4 address, of letters, digits, '.', '-' and '_'",
        name));
  }
}

// Returns the hosts that have slots. Throws if a host name is malformed or no slot is left.
Hosts in_use(const Hosts& hosts) {
  Hosts out;
  for (const Host& host : hosts) {
    if (host.slots.empty()) continue;
    require_host_name(host.name);
    out.push_back(host);
  }
  if (out.empty()) throw std::invalid_argument("no slot is left on any host");
  return out;
}

// Returns, for each host, why it cannot be used, or "".
std::vector<std::string> troubles_of(const ClusterOptions& options) {
  std::vector<std::string> all(options.hosts.size()), others;
  std::vector<size_t> places;
  for (size_t i = 0; i < options.hosts.size(); ++i) {
    const std::string& name = options.hosts[i].name;
    if (options.starter != Starter::srun && is_this_host(name)) continue;
    others.push_back(name);
    places.push_back(i);
  }
  std::vector<std::string> programs = {options.program};
  if (options.starter == Starter::mpirun) programs.insert(programs.begin(), "orted");
  const std::vector<std::string> found = options.starter == Starter::srun
                                             ? slurm_troubles(others)
                                             : host_troubles(others, programs, options.ssh);
  for (size_t i = 0; i < places.size(); ++i) all[places[i]] = found[i];
  return all;
}

void check_before_start(const ClusterOptions& options) {
  if (options.starter == Starter::srun || !options.ssh_check) return;
  for (const std::string& trouble : troubles_of(options)) {
    if (!trouble.empty()) throw std::invalid_argument(trouble);
  }
}

// Returns the requested port or, if none is requested, a port that is free or likely to be free.
// Throws if the first host is this host and the requested port is taken.
int port_for(const ClusterOptions& options) {
  const bool here = is_this_host(options.hosts[0].name);
  if (here && options.master_port != 0) require_free_port(options.master_port);
  if (options.master_port != 0) return options.master_port;
  return here ? free_port() : kUsualPort;
}

// One run of mpirun or srun. Its standard error is forwarded without the agents' records.
class Starting {
 public:
  Starting(std::vector<std::string> words, std::vector<std::string> variables, std::string token)
      : words_(std::move(words)),
        variables_(std::move(variables)),
        reports_(std::move(token)),
        signals_{SIGINT, SIGTERM, SIGHUP} {}
  ~Starting() {
    if (pid_ > 0) {
      kill_all();
      waitpid(pid_, nullptr, 0);
    }
    if (errors_ >= 0) close(errors_);
  }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

  // After the starter has ended, the rest of its output is read, because it may contain the record
  // that names the cause.
  JobEnd run() {
    start();
    while (!ended()) {
      relay(kLookMs);
      while (int number = signals_.next(0)) obey(number);
      press();
    }
    while (relay(0)) continue;
    write_all(STDERR_FILENO, reports_.rest());
    if (!pressure_.begun() && reports_.first()) failure_ = reports_.first();
    return {verdict(), interrupts_ > 0};
  }

 private:
  static constexpr int kLookMs = 50;

  void start() {
    variables_.push_back(mark_.variable());
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw std::system_error(errno, std::generic_category(), "pipe");
    errors_ = ends[0];
    fcntl(errors_, F_SETFL, O_NONBLOCK);
    // On SIGTERM, mpirun and srun end their job before they exit, so SIGTERM is the death signal.
    Started started = start_process(
        words_, variables_, {.mask = signals_.mask(), .errors = ends[1], .death_signal = SIGTERM});
    close(ends[1]);
    if (started.error != 0) {
      throw std::invalid_argument(fmt::format("several hosts need {}, which cannot be run: {}",
                                              words_[0],
                                              std::generic_category().message(started.error)));
    }
    pid_ = started.pid;
  }

  // Waits for output for at most `milliseconds` and forwards one piece of it; returns false if
  // there was none.
  bool relay(int milliseconds) {
    pollfd ready{errors_, POLLIN, 0};
    if (poll(&ready, 1, milliseconds) <= 0) return false;
    char part[65536];
    ssize_t got = read(errors_, part, sizeof part);
    if (got > 0) write_all(STDERR_FILENO, reports_.feed({part, static_cast<size_t>(got)}));
    // The stream has ended, so the starter is about to end: wait for SIGCHLD instead of polling.
    if (got == 0 && milliseconds > 0) obey(signals_.next(milliseconds));
    return got > 0;
  }

  // Forwards the first signal to the agents, as SIGUSR1 for an interrupt or SIGUSR2 for a hangup.
  // The second signal ends the job, and a third kills the starter; a hangup after another signal is
  // ignored.
  void obey(int number) {
    if (number == 0 || number == SIGCHLD) return;
    if (number == SIGHUP && interrupts_ > 0) return;
    ++interrupts_;
    if (interrupts_ == 1) {
      kill(pid_, number == SIGHUP ? SIGUSR2 : SIGUSR1);
    } else if (interrupts_ == 2) {
      pressure_.insist();
    } else {
      kill_all();
    }
  }

  // Ends the job step by step after a failure. Until then, an agent that has reported a failure
  // does not exit, because mpirun and srun cancel all ranks as soon as one exits with a code other
  // than 0, and srun drops the output of ranks that it cancels.
  void press() {
    // Once the launcher has begun to end the job, it causes all later failures itself.
    if (!pressure_.begun()) {
      failure_ = reports_.first();
      if (!failure_) failure_ = doubt_.next(reports_.stopped(), interrupts_ > 0);
    }
    if (failure_) pressure_.start();
    Pressure::Act act = pressure_.next();
    if (act == Pressure::Act::end) kill(pid_, SIGTERM);
    if (act == Pressure::Act::kill) kill_all();
  }

  // Kills the starter's children and its process group. The children need a separate signal,
  // because mpirun puts each agent and each ssh into a new process group.
  void kill_all() const noexcept {
    try {
      for (const pid_t child : children_of(pid_)) kill(child, SIGKILL);
    } catch (const std::exception&) {
      // Memory has run out; the starter's process group is killed anyway.
    }
    kill(-pid_, SIGKILL);
  }

  // Returns whether the starter has ended. As in Job::collect(), the process group is killed before
  // waitpid(), while the process id of its leader is still in use.
  bool ended() {
    siginfo_t info{};
    if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
      return false;
    // Kills the processes that the starter left in its process group.
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
    code_ = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    return true;
  }

  // Returns how the job ended: the failure that was reported, a stop, or the exit code of the
  // starter, for which no reason is known.
  RankFailure verdict() const {
    if (failure_) return *failure_;
    if (code_ == 0) return reports_.stopped().value_or(RankFailure{});
    std::string text =
        fmt::format("{} ended with code {} and no rank gave a reason", words_[0], code_);
    return {.code = code_, .text = interrupts_ < 2 ? text : ""};
  }

  std::vector<std::string> words_, variables_;
  ReportReader reports_;
  Signals signals_;
  LauncherPipe mark_;
  Guardian guardian_{mark_, Pressure::kLimit};
  pid_t pid_ = 0;
  int errors_ = -1;
  Pressure pressure_;
  StopDoubt doubt_;
  std::optional<RankFailure> failure_;
  int code_ = 0;
  int interrupts_ = 0;
};

// A job over several hosts; a restart uses the hosts that are available at that time.
class ClusterAttempts : public Attempts {
 public:
  ClusterAttempts(const ClusterOptions& options, const std::vector<std::string>& command)
      : given_(options), now_(options), command_(command) {}

  // Each starter passes the launcher's variables to the ranks in a different way: mpirun copies the
  // variables with the given names from its environment, srun copies its whole environment, and
  // with ssh the launcher writes them to the agents' standard input.
  JobEnd run(int, const Variables& more, const OnFailure&) override {
    ClusterOptions options = now_;
    options.master_port = port_for(options);
    std::string token = fresh_secret();
    Variables own = options.variables;
    for (const auto& [name, value] : more) own[name] = value;
    own["DS_LAUNCH_TOKEN"] = token;
    own["DS_JOB_KEY"] = fresh_secret();
    own["DS_WORLD_INFO"] = encode_world_map(options.hosts);
    std::vector<std::string> variables, names;
    for (const auto& [name, value] : own) {
      variables.push_back(fmt::format("{}={}", name, value));
      names.push_back(name);
    }
    for (char** entry = environ; *entry != nullptr; ++entry) {
      std::string_view text(*entry);
      std::string name(text.substr(0, text.find('=')));
      if (!forwarded(name) || own.contains(name)) continue;
      names.push_back(name);
      if (options.starter == Starter::ssh) own[name] = text.substr(name.size() + 1);
    }
    if (options.starter == Starter::ssh) return run_over_ssh(options, own, token, command_);
    return Starting(starter_words(options, names, command_), variables, token).run();
  }

  // Checks all hosts that were given, because a host may have become available again.
  RanksLeft left() override {
    const std::vector<std::string> troubles = troubles_of(given_);
    RanksLeft left;
    now_.hosts.clear();
    for (size_t i = 0; i < troubles.size(); ++i) {
      if (troubles[i].empty()) {
        now_.hosts.push_back(given_.hosts[i]);
      } else {
        left.without += (left.without.empty() ? "" : "; ") + troubles[i];
      }
    }
    left.ranks = rank_count(now_.hosts);
    return left;
  }

  // Only a job that srun started within a Slurm job can be handed over, to Slurm, which finds other
  // hosts for it.
  std::string heir() override {
    if (!in_job_of_slurm()) return "";
    return fmt::format("Slurm starts job {} again when it has hosts for it", slurm_job());
  }

  bool hand_over() override {
    const std::string refusal = slurm_requeue();
    if (!refusal.empty())
      fmt::print(stderr, "libds launch: job {} is not requeued: {}\n", slurm_job(), refusal);
    return refusal.empty();
  }

  void note(int made) override {
    if (in_job_of_slurm()) note_slurm_restarts(made);
  }

  void forget() const {
    if (in_job_of_slurm()) forget_slurm_restarts();
  }

 private:
  bool in_job_of_slurm() const { return given_.starter == Starter::srun && in_slurm_job(); }

  const ClusterOptions given_;
  // `given_`, but with the hosts that can be used.
  ClusterOptions now_;
  const std::vector<std::string>& command_;
};

}  // namespace

int launch_on_hosts(const ClusterOptions& given, const std::vector<std::string>& command) {
  if (command.empty()) throw std::invalid_argument("command must name a program, got no words");
  ClusterOptions options = given;
  options.hosts = in_use(given.hosts);
  check_before_start(options);
  ClusterAttempts attempts(options, command);
  const int code = run_with_restarts(options.restarts, attempts);
  if (code == 0) attempts.forget();
  return code;
}

}  // namespace ds
