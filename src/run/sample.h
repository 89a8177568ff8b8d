#pragma once
#include <string>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "inference/sampler.h"
#include "run/data.h"

namespace ds {

// The run's sample: the beginning of the held-out text, then what the model continues it with; less of it
// when *stop [nullable] becomes non-zero on any rank. Collective.
std::string run_sample(Engine& engine, const RunData& data, const volatile int32_t* stop);

// Loads the newest checkpoint of a run folder (or the checkpoint `run` itself) and continues `prompt` by
// `tokens` tokens. Returns the continuation. Collective; the same text on every rank.
// DS_ERROR_NOT_FOUND when there is no complete checkpoint.
std::string generate_from_run(Communicator& comm, const std::string& run, const std::string& prompt,
                              int64_t tokens, const SamplingOptions& options);

}  // namespace ds
