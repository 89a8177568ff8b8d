// This file implements the agent of a job over several hosts: the process that mpirun, srun or ssh
// starts to run ranks. The agent determines its place in the job, runs its ranks as a part of the
// larger job, and reports how they have ended.

#include "launch/agent.h"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <thread>

#include "launch/blame.h"
#include "launch/failure_report.h"
#include "launch/pressure.h"
#include "launch/process.h"
#include "launch/rank.h"
#include "launch/strings.h"

namespace ds {
namespace {

int number_of(std::string_view word, std::string_view name) {
  int value = -1;
  auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (code != std::errc{} || end != word.data() + word.size() || value < 0)
    throw std::invalid_argument(fmt::format("{} must be a number, got '{}'", name, word));
  return value;
}

// Returns the rank that mpirun or srun gave to this process.
int given_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* text = std::getenv(name)) return number_of(text, name);
  }
  throw std::invalid_argument(
      "agent: no environment variable names the rank: mpirun or srun must start this command");
}

// Returns the launcher's token and removes it from the environment, so that the ranks do not get
// it. Returns "" without a launcher.
std::string take_token() {
  const char* text = std::getenv("DS_LAUNCH_TOKEN");
  std::string token = text ? text : "";
  unsetenv("DS_LAUNCH_TOKEN");
  return token;
}

// Returns whether this start of the job is a restart.
bool is_restart() {
  const char* text = std::getenv("DS_RESTART");
  return text != nullptr && std::string_view(text) != "0";
}

bool is_daemon_of_mpirun(pid_t process) { return name_of(process) == "orted"; }

// The agent's connection to the launcher, by which it reports how the ranks have ended.
class Teller {
 public:
  explicit Teller(bool over_ssh) : token_(take_token()), over_ssh_(over_ssh) {}

  // Reports a failure in one write, so that the records of several ranks do not mix.
  void tell(const RankFailure& failure) {
    put(token_.empty() ? fmt::format("libds launch: {}\n", failure.text)
                       : report_record(token_, failure));
    told_ = true;
  }

  // Reports that the ranks of this agent were stopped, and returns the agent's exit code. The code
  // is 0 if there is a launcher, which reads the record: mpirun and srun take any other code for a
  // failure and end the job.
  int tell_stopped(const RankFailure& stopped) {
    if (token_.empty()) return kStoppedCode;
    put(report_record(token_, stopped));
    return 0;
  }

  // After a failure, waits until the launcher ends the job, at most 6 seconds, so that the launcher
  // can read the record first: mpirun and srun end the job as soon as an agent returns a code, and
  // srun drops output that was not read by then. ssh reads all output, so its agents do not wait.
  // If mpirun's daemon is still running after that time, it cannot reach the launcher and would
  // wait for a quarter of an hour, so the agent sends it SIGTERM.
  void await_the_end() const {
    if (!told_ || token_.empty() || over_ssh_) return;
    pid_t parent = getppid();
    auto limit = std::chrono::steady_clock::now() + Pressure::kLimit;
    while (getppid() == parent && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (getppid() == parent && is_daemon_of_mpirun(parent)) kill(parent, SIGTERM);
  }

 private:
  static void put(const std::string& text) {
    (void)!write(STDERR_FILENO, text.data(), text.size());
  }

  std::string token_;
  bool over_ssh_, told_ = false;
};

// Returns a message if this rank runs on another host than the hostfile assigns to it, because
// Slurm lists the hosts in another order; otherwise "".
std::string misplaced(const RankPlace& place) {
  const char* node = std::getenv("SLURMD_NODENAME");
  if (!node) return "";
  auto shorter = [](std::string_view name) { return name.substr(0, name.find('.')); };
  const bool is_address = place.host[0] >= '0' && place.host[0] <= '9';
  if (shorter(node) == shorter(place.host) || is_address) return "";
  return fmt::format(
      "Slurm runs rank {} on host '{}', but the hostfile has it on '{}': list hosts in Slurm's "
      "order",
      place.rank, node, place.host);
}

}  // namespace

std::string world_text(const Hosts& hosts) {
  std::string text;
  for (const Host& host : hosts)
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", host.name, host.slots.size());
  return text;
}

Hosts parse_world(std::string_view text) {
  Hosts hosts;
  for (std::string_view part : split(text, ',')) {
    size_t colon = part.rfind(':');
    if (colon == std::string_view::npos)
      throw std::invalid_argument(fmt::format("--world must be HOST:RANKS,..., got '{}'", text));
    Host host{std::string(part.substr(0, colon)), {}};
    host.slots.resize(static_cast<size_t>(number_of(part.substr(colon + 1), "--world")));
    std::iota(host.slots.begin(), host.slots.end(), 0);
    hosts.push_back(std::move(host));
  }
  return hosts;
}

RankPlace place_of_rank(const Hosts& hosts, int rank, int master_port, const std::string& url) {
  int before = 0;
  for (size_t h = 0; h < hosts.size(); ++h) {
    int here = static_cast<int>(hosts[h].slots.size());
    if (rank < before + here) {
      return {.rank = rank,
              .size = rank_count(hosts),
              .local_rank = rank - before,
              .local_size = here,
              .cross_rank = static_cast<int>(h),
              .cross_size = static_cast<int>(hosts.size()),
              .host = hosts[h].name,
              .url = url,
              .master_host = hosts[0].name,
              .master_port = master_port};
    }
    before += here;
  }
  throw std::invalid_argument(fmt::format("agent: rank {} is not one of the {} ranks of {}", rank,
                                          before, world_text(hosts)));
}

// The text begins with its size in eight digits, so that the agent knows where the variables end
// and orders begin.
std::string packed(const Variables& variables) {
  std::string text;
  for (const auto& [name, value] : variables) text += name + "=" + value + '\0';
  return fmt::format("{:08d}", text.size()) + text;
}

Variables read_packed(int fd) {
  auto take = [&](size_t size) {
    std::string text(size, '\0');
    for (size_t at = 0; at < size;) {
      ssize_t got = read(fd, text.data() + at, size - at);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0)
        throw std::invalid_argument(
            "agent: standard input has no variables: libds launch must start this command");
      at += static_cast<size_t>(got);
    }
    return text;
  };
  Variables variables;
  std::string text = take(static_cast<size_t>(number_of(take(8), "the size of variables")));
  for (std::string_view entry : split(text, '\0')) {
    size_t equals = entry.find('=');
    if (equals != std::string_view::npos)
      variables[std::string(entry.substr(0, equals))] = entry.substr(equals + 1);
  }
  return variables;
}

namespace {

// Returns the places of the ranks that this agent runs: the one rank under mpirun or srun,
// otherwise all ranks of the host.
std::vector<RankPlace> places_of_agent(const AgentOptions& options) {
  Hosts hosts = parse_world(options.world);
  auto place = [&](int rank) {
    return place_of_rank(hosts, rank, options.master_port, options.url);
  };
  if (options.host < 0) return {place(given_rank())};
  std::vector<RankPlace> places;
  for (int r = 0; r < rank_count(hosts); ++r) {
    if (RankPlace one = place(r); one.cross_rank == options.host) places.push_back(one);
  }
  if (places.empty())
    throw std::invalid_argument(
        fmt::format("agent: host {} has no ranks in {}", options.host, options.world));
  return places;
}

// Runs the ranks and returns the code of the first failure, or the agent's code for a stop. Reports
// either to the launcher, but no failure after the launcher has begun to end the job.
int run_ranks(const AgentOptions& options, std::vector<RankPlace> places,
              const std::vector<std::string>& command, Teller& launcher) {
  const RankPlace first = places[0];
  if (std::string reason = misplaced(first); !reason.empty() && options.host < 0) {
    launcher.tell({first.rank, 1, false, reason});
    return 1;
  }
  try {
    if (chdir(options.folder.c_str()) != 0)
      throw std::system_error(errno, std::generic_category(),
                              fmt::format("folder '{}'", options.folder));
    JobOptions job{.grace_ms = options.grace_ms,
                   .term_ms = options.term_ms,
                   .binding = options.binding,
                   .log_dir = options.log_dir,
                   .append = is_restart(),
                   .part = true,
                   .orders = options.host >= 0 ? STDIN_FILENO : -1,
                   .daemon = is_daemon_of_mpirun(getppid()) ? getppid() : 0};
    RankFailure end = Job(job, std::move(places), command).run([&](const RankFailure& failure) {
      launcher.tell(failure);
    });
    return end.stopped() ? launcher.tell_stopped(end) : end.code;
  } catch (const std::system_error& error) {
    launcher.tell({first.rank, 126, false,
                   fmt::format("rank {} on host '{}' cannot start: {}", first.rank, first.host,
                               error.what())});
    return 126;
  }
}

}  // namespace

// The variables must be set before the Teller is created, because it takes the token from them.
int run_agent(const AgentOptions& options, const std::vector<std::string>& command) {
  if (command.empty()) throw std::invalid_argument("command must name a program, got no words");
  std::vector<RankPlace> places = places_of_agent(options);
  if (options.host >= 0) {
    for (const auto& [name, value] : read_packed(STDIN_FILENO))
      setenv(name.c_str(), value.c_str(), 1);
  }
  Teller launcher(options.host >= 0);
  int code = run_ranks(options, std::move(places), command, launcher);
  launcher.await_the_end();
  return code;
}

}  // namespace ds
