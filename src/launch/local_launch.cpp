#include "launch/local_launch.h"

#include <fmt/core.h>

#include <stdexcept>
#include <utility>

#include "launch/blame.h"
#include "launch/env_file.h"
#include "launch/port.h"
#include "launch/rank.h"

namespace ds {
namespace {

// A job whose ranks are on this host. A restart always uses all ranks, because the death of a rank
// does not reduce the number of cores.
class LocalAttempts : public Attempts {
 public:
  LocalAttempts(const LaunchOptions& options, const std::vector<std::string>& command)
      : options_(options), command_(command) {}

  JobEnd run(int restart, const Variables& more, const OnFailure& on_failure) override {
    JobOptions options = options_.job;
    options.append = restart > 0;
    Job job(options, places(more), command_);
    RankFailure failure = job.run(on_failure);
    return {std::move(failure), job.asked()};
  }

  RanksLeft left() override { return {options_.ranks, ""}; }

 private:
  // Each start has a fresh url and key, so that ranks left over from an earlier start cannot join.
  std::vector<RankPlace> places(const Variables& more) const {
    int port = options_.master_port;
    if (port == 0) {
      port = free_port();
    } else {
      require_free_port(port);
    }
    std::vector<RankPlace> places;
    std::string url = fresh_url(), key = fresh_secret();
    for (int r = 0; r < options_.ranks; ++r) {
      places.push_back({.rank = r,
                        .size = options_.ranks,
                        .local_rank = r,
                        .local_size = options_.ranks,
                        .host = "",
                        .url = url,
                        .key = key,
                        .master_host = "127.0.0.1",
                        .master_port = port,
                        .more = more});
    }
    return places;
  }

  const LaunchOptions& options_;
  const std::vector<std::string>& command_;
};

}  // namespace

int launch(const LaunchOptions& options, const std::vector<std::string>& command) {
  if (options.ranks < 1)
    throw std::invalid_argument(fmt::format("ranks must be 1 or more, got {}", options.ranks));
  if (command.empty()) throw std::invalid_argument("command must name a program, got no words");
  LocalAttempts attempts(options, command);
  return run_with_restarts(options.restarts, attempts);
}

}  // namespace ds
