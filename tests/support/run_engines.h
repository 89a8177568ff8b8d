#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "engine/engine.h"
#include "support/same_bits.h"

namespace ds::test {

// Runs `body` with an engine of the point's model on every rank, each in a thread. Returns the hash
// of the final states, which must agree on all ranks. `kernels` registers additional kernels.
std::string run_engines(const Point& point, const Config& config,
                        const std::function<void(Engine&)>& body,
                        const std::function<void(KernelRegistry&)>& kernels = {});

// Trains `steps` steps with run_engines(). The test fails if a step is skipped.
std::string run_steps(const Point& point, const Config& config, int steps);

// Returns the number of bytes in the ledger of the engine's rank: received in collectives, and
// moved by copies and file transfers.
int64_t bytes_received(const Engine& engine);

}  // namespace ds::test
