#include "support/run_engines.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/ranks.h"

namespace ds::test {

std::string run_engines(const Point& point, const Config& config, const std::function<void(Engine&)>& body) {
  std::vector<std::string> hashes(static_cast<size_t>(point.world));
  run_ranks(point.world, [&](Communicator& comm) {
    EngineOptions options;
    options.threads = point.threads;
    options.programs.written_out = point.written_out;
    set_device(options, point);
    Engine engine(config, graph_of(point), comm, options);
    body(engine);
    hashes[static_cast<size_t>(comm.rank())] = hash_of_states(engine);
  });
  for (const std::string& h : hashes) EXPECT_EQ(h, hashes[0]) << point.name();
  return hashes[0];
}

}  // namespace ds::test
