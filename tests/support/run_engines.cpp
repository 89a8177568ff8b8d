#include "support/run_engines.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/ranks.h"

namespace ds::test {

std::string run_engines(const Point& point, const Config& config,
                        const std::function<void(Engine&)>& body,
                        const std::function<void(KernelRegistry&)>& kernels) {
  std::vector<std::string> hashes(static_cast<size_t>(point.world));
  run_ranks(point.world, [&](Communicator& comm) {
    EngineOptions options;
    options.threads = point.threads;
    options.kernel_filter = kernels;
    options.programs.written_out = point.written_out;
    set_device(options, point);
    Engine engine(config, graph_of(point), comm, options);
    body(engine);
    hashes[static_cast<size_t>(comm.rank())] = hash_of_states(engine);
  });
  for (const std::string& h : hashes) EXPECT_EQ(h, hashes[0]) << point.name();
  return hashes[0];
}

std::string run_steps(const Point& point, const Config& config, int steps) {
  return run_engines(point, config, [&](Engine& engine) {
    for (int s = 0; s < steps; ++s) {
      StepResult r = train_step(point, engine, s);
      EXPECT_TRUE(!r.skipped && std::isfinite(r.loss) && r.grad_norm > 0)
          << point.name() << " step " << s << ": " << r.reason << " " << r.grad_norm;
    }
  });
}

int64_t bytes_received(const Engine& engine) {
  int64_t sum = 0;
  for (const auto& [name, count] : engine.runtime().ledger()) sum += count.bytes;
  return sum;
}

}  // namespace ds::test
