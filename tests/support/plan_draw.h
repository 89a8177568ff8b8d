#pragma once
#include <cstdint>
#include <string>

namespace ds::test {

// A random document of a tiny model, and the engines of all its ranks beside `make_plan` of each:
// equal hashes, equal bytes of every arena, which are what the engine has mapped. The engine of
// every other seed is that of a run, the others have a graph. device: "chaos", or a name of the
// configuration. Returns whether the document was taken: features that do not go together are
// drawn, too.
bool plan_is_the_engines(uint64_t seed, const std::string& device);

// Draws from DS_PLAN_DRAWS, or else as many as given.
uint64_t plan_draws(uint64_t few);

}  // namespace ds::test
