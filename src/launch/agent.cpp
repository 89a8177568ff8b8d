#include "launch/agent.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <system_error>

#include "launch/report.h"
#include "launch/text.h"

namespace ds {
namespace {

int number_of(std::string_view word, std::string_view what) {
  int value = -1;
  auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (code != std::errc{} || end != word.data() + word.size() || value < 0)
    throw std::invalid_argument(fmt::format("{} must be a number, got '{}'", what, word));
  return value;
}

// The number that mpirun or srun gave to this process.
int given_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* text = std::getenv(name)) return number_of(text, name);
  }
  throw std::invalid_argument("agent: no rank in the environment: mpirun or srun must start it");
}

// One write, so that records of several ranks do not mix.
void tell(const RankFailure& failure) {
  const char* token = std::getenv("DS_LAUNCH_TOKEN");
  std::string text = token ? report_record(token, failure) : fmt::format("libds launch: {}\n", failure.text);
  (void)!write(STDERR_FILENO, text.data(), text.size());
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

RankPlace place_of_rank(const Hosts& hosts, int rank, int master_port) {
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
              .url = "mpi",
              .master_host = hosts[0].name,
              .master_port = master_port};
    }
    before += here;
  }
  throw std::invalid_argument(
      fmt::format("agent: rank {} of {} ranks ({})", rank, before, world_text(hosts)));
}

int run_agent(const AgentOptions& options, const std::vector<std::string>& command) {
  if (command.empty()) throw std::invalid_argument("command must name a program, got no words");
  RankPlace place = place_of_rank(parse_world(options.world), given_rank(), options.master_port);
  try {
    if (chdir(options.folder.c_str()) != 0)
      throw std::system_error(errno, std::generic_category(), fmt::format("folder '{}'", options.folder));
    JobOptions job{.term_ms = options.term_ms, .log_dir = options.log_dir, .part = true};
    return Job(job, {place}, command).run(tell).code;
  } catch (const std::system_error& error) {
    tell({place.rank, 126, false,
          fmt::format("rank {} on host '{}' cannot start: {}", place.rank, place.host, error.what())});
    return 126;
  }
}

}  // namespace ds
