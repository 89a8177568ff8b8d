#pragma once
#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "monitor/run_record.h"
#include "run/data.h"

namespace ds {

// The run's sample after the steps so far: the beginning of the held-out text, and what the model
// continues it with; less of it when *stop [nullable] becomes non-zero on any rank. Equal weights
// write an equal text. No text where run.sample_tokens is 0 or the model continues none.
// Collective.
SampleRecord run_sample(Engine& engine, const RunData& data, const volatile int32_t* stop);

// The record as a person reads it: lines of the text behind a bar.
std::string sample_text(const SampleRecord& sample, bool with_prompt);

}  // namespace ds
