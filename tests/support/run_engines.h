#pragma once
#include <functional>
#include <string>

#include "engine/engine.h"
#include "support/same_bits.h"

namespace ds::test {

// Runs `body` with an engine of the point's model on every rank, a thread each. Returns the hash of the
// states behind it, in which all ranks must agree.
std::string run_engines(const Point& point, const Config& config, const std::function<void(Engine&)>& body);

}  // namespace ds::test
