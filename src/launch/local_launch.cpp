#include "launch/local_launch.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "launch/blame.h"
#include "launch/port.h"
#include "launch/rank.h"

namespace ds {

int launch(const LaunchOptions& options, const std::vector<std::string>& command) {
  if (options.ranks < 1)
    throw std::invalid_argument(fmt::format("ranks must be 1 or more, got {}", options.ranks));
  if (command.empty()) throw std::invalid_argument("command must name a program, got no words");
  int port = options.master_port;
  if (port == 0) {
    port = free_port();
  } else {
    require_free_port(port);
  }
  std::vector<RankPlace> places;
  std::string url = fresh_url(), key = fresh_secret();
  for (int r = 0; r < options.ranks; ++r) {
    places.push_back({.rank = r,
                      .size = options.ranks,
                      .local_rank = r,
                      .local_size = options.ranks,
                      .host = "",
                      .url = url,
                      .key = key,
                      .master_host = "127.0.0.1",
                      .master_port = port});
  }
  Job job(options.job, std::move(places), command);
  return job.run([](const RankFailure& failure) { fmt::print(stderr, "libds launch: {}\n", failure.text); })
      .code;
}

}  // namespace ds
