#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "engine/engine.h"
#include "support/same_bits.h"

namespace ds::test {

// Runs `body` with an engine of the point's model on every rank, a thread each. Returns the hash of
// the states behind it, in which all ranks must agree.
std::string run_engines(const Point& point, const Config& config,
                        const std::function<void(Engine&)>& body);

// The same of so many steps, none of which may be skipped.
std::string run_steps(const Point& point, const Config& config, int steps);

// That the engine's rank has received in collectives, of all operations.
int64_t bytes_received(const Engine& engine);

}  // namespace ds::test
