// This file runs a job by ssh alone. ssh forwards no signals, and an agent does not notice by
// itself that the launcher or the network has gone. So the launcher writes orders, one letter each,
// to the standard input of each agent; the end of that stream, or half a minute without any order,
// ends the agent and its ranks. A separate process (pulse.h) sends an order every few seconds.
// Agents report failures as records within their standard error (failure_report.h).

#include "launch/ssh_job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "launch/agent.h"
#include "launch/blame.h"
#include "launch/failure_report.h"
#include "launch/job.h"
#include "launch/pressure.h"
#include "launch/pulse.h"
#include "launch/rank.h"
#include "launch/signals.h"
#include "launch/starter.h"
#include "launch/strings.h"

namespace ds {
namespace {

constexpr int kPollMs = 50;

// Throws std::system_error with errno, for a failed call.
[[noreturn]] void no_job(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

// The agent of one host, with its order stream and its standard error.
struct Agent {
  Agent(std::string host, const std::string& token) : name(std::move(host)), reports(token) {}
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  ~Agent() {
    if (pid > 0) {
      kill(-pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    for (int fd : {orders, errors}) {
      if (fd >= 0) close(fd);
    }
  }

  void start(const std::vector<std::string>& words, const Variables& variables,
             const Signals& signals);
  void send(std::string_view text) const;
  // Forwards available output; returns false if there was nothing to forward.
  bool relay();
  void collect();

  std::string name;
  ReportReader reports;
  pid_t pid = 0;
  int orders = -1, errors = -1;
  int code = 0;
};

void Agent::start(const std::vector<std::string>& words, const Variables& variables,
                  const Signals& signals) {
  int in[2], out[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0) no_job("socketpair");
  orders = in[0];
  if (pipe2(out, O_CLOEXEC) != 0) {
    close(in[1]);
    no_job("pipe");
  }
  errors = out[0];
  fcntl(errors, F_SETFL, O_NONBLOCK);
  Started started =
      start_process(words, {}, {.mask = signals.mask(), .input = in[1], .errors = out[1]});
  close(in[1]);
  close(out[1]);
  if (started.error != 0) {
    throw std::invalid_argument(fmt::format("host '{}' needs {}, which cannot be run: {}", name,
                                            words[0],
                                            std::generic_category().message(started.error)));
  }
  pid = started.pid;
  send(packed(variables));
}

// Sends bytes to the agent. If the agent has ended, the bytes are dropped.
void Agent::send(std::string_view text) const {
  while (!text.empty()) {
    ssize_t put = ::send(orders, text.data(), text.size(), MSG_NOSIGNAL);
    if (put < 0 && errno != EINTR) return;
    if (put > 0) text.remove_prefix(static_cast<size_t>(put));
  }
}

bool Agent::relay() {
  char part[65536];
  ssize_t got = read(errors, part, sizeof part);
  if (got > 0) write_all(STDERR_FILENO, reports.feed({part, static_cast<size_t>(got)}));
  if (got == 0) {
    close(errors);
    errors = -1;
  }
  return got > 0;
}

// If the agent has ended, reads its output to the end before it counts as ended, because the last
// record may name the cause.
void Agent::collect() {
  siginfo_t info{};
  if (pid == 0 || waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return;
  }
  while (errors >= 0 && relay()) continue;
  write_all(STDERR_FILENO, reports.rest());
  kill(-pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  pid = 0;
  code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

// A job by ssh: the agents of all hosts, their pulse, and the decision how the job ended.
class SshJob {
 public:
  SshJob() : signals_{SIGINT, SIGTERM, SIGHUP} {}

  void start(const ClusterOptions& options, const Variables& variables, const std::string& token,
             const std::vector<std::string>& command) {
    std::string url = fmt::format("tcp://{}:{}", options.hosts[0].name, options.master_port);
    for (size_t host = 0; host < options.hosts.size(); ++host) {
      agents_.push_back(std::make_unique<Agent>(options.hosts[host].name, token));
      agents_.back()->start(ssh_agent_words(options, host, url, command), variables, signals_);
    }
    std::vector<int> orders;
    for (const auto& agent : agents_) orders.push_back(agent->orders);
    pulse_.emplace(orders);
  }

  JobEnd run() {
    while (running()) {
      wait();
      while (int number = signals_.next(0)) obey(number);
      for (auto& agent : agents_) look_at(*agent);
      doubt_stop();
      press();
    }
    return {verdict(), interrupts_ > 0};
  }

 private:
  bool running() const {
    for (const auto& agent : agents_) {
      if (agent->pid > 0) return true;
    }
    return false;
  }

  void wait() {
    std::vector<pollfd> ready;
    for (const auto& agent : agents_) {
      if (agent->errors >= 0) ready.push_back({agent->errors, POLLIN, 0});
    }
    poll(ready.data(), ready.size(), kPollMs);
  }

  // An agent may end with a code but without a record, for example if ssh loses the connection to
  // its host. Such an end also ends the other agents.
  void look_at(Agent& agent) {
    while (agent.errors >= 0 && agent.relay()) continue;
    bool was_running = agent.pid > 0;
    agent.collect();
    if (agent.reports.first() && !pressure_.begun()) blame_.add(*agent.reports.first());
    if (blame_.first() || (was_running && agent.pid == 0 && agent.code != 0)) pressure_.start();
  }

  void tell_all(Order order) const {
    char letter = static_cast<char>(order);
    for (const auto& agent : agents_) {
      if (agent->pid > 0) agent->send({&letter, 1});
    }
  }

  void obey(int number) {
    if (number == SIGCHLD || (number == SIGHUP && interrupts_ > 0)) return;
    if (++interrupts_ > 2) return kill_all();
    if (interrupts_ == 2) pressure_.insist();
    tell_all(number == SIGHUP ? Order::hangup : Order::interrupt);
  }

  void kill_all() const {
    for (const auto& agent : agents_) {
      if (agent->pid > 0) kill(-agent->pid, SIGKILL);
    }
  }

  // If an agent reports ranks that stopped without a request and the other agents do not end in
  // time, counts that as a failure; see StopDoubt.
  void doubt_stop() {
    std::optional<RankFailure> stopped;
    for (const auto& agent : agents_) {
      if (!stopped) stopped = agent->reports.stopped();
    }
    if (blame_.first() || pressure_.begun() || !running()) return;
    std::optional<RankFailure> failure = doubt_.next(stopped, interrupts_ > 0);
    if (!failure) return;
    blame_.add(*failure);
    pressure_.start();
  }

  void press() {
    Pressure::Act act = pressure_.next();
    if (act == Pressure::Act::end) tell_all(Order::end);
    if (act == Pressure::Act::kill) kill_all();
  }

  // Returns how the job ended: the failure to name, the exit code of an agent that reported no
  // reason, or a stop.
  RankFailure verdict() const {
    if (const auto& failure = blame_.first()) return *failure;
    RankFailure stopped;
    for (const auto& agent : agents_) {
      if (agent->reports.stopped()) stopped = *agent->reports.stopped();
      if (agent->code == 0) continue;
      std::string text =
          fmt::format("host '{}': its agent ended with code {} and no rank gave a reason",
                      agent->name, agent->code);
      return {.code = agent->code, .text = interrupts_ < 2 ? text : ""};
    }
    return stopped;
  }

  Signals signals_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::optional<Pulse> pulse_;
  Blame blame_;
  Pressure pressure_;
  StopDoubt doubt_;
  int interrupts_ = 0;
};

}  // namespace

JobEnd run_over_ssh(const ClusterOptions& options, const Variables& variables,
                    const std::string& token, const std::vector<std::string>& command) {
  SshJob job;
  job.start(options, variables, token, command);
  return job.run();
}

}  // namespace ds
