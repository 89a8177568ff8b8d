#pragma once
#include <string>

#include "engine/engine.h"
#include "run/data.h"

namespace ds {

// The run's sample: the beginning of the held-out text, then what the model continues it with; less of it
// when *stop [nullable] becomes non-zero on any rank. Collective.
std::string run_sample(Engine& engine, const RunData& data, const volatile int32_t* stop);

}  // namespace ds
