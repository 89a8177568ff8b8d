#pragma once
#include <cstdint>
#include <string>

namespace ds::test {

// Draws a random configuration of a tiny model and compares the engines of all ranks with
// `make_plan` for each rank: plan hashes and arena sizes must be equal, and the engine must have
// allocated these sizes. Some draws configure a whole run, others only an engine for a given graph.
// device: "chaos", or a device name of the configuration. Returns whether the configuration was
// accepted; drawn features may exclude each other.
bool plan_is_the_engines(uint64_t seed, const std::string& device);

// Returns the number of draws in DS_PLAN_DRAWS, or `few` if that is not set.
uint64_t plan_draws(uint64_t few);

}  // namespace ds::test
