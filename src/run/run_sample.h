#pragma once
#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "monitor/run_record.h"
#include "run/data.h"

namespace ds {

// Generates a sample text with the current weights: the prompt (RunData::prompt()), and the model's
// continuation of it. The continuation is shorter if `stop` is not null on some rank and *stop
// becomes non-zero there. Equal weights generate equal text. The text is empty if run.sample_tokens
// is 0 or the prompt is empty. Collective.
SampleRecord run_sample(Engine& engine, const RunData& data, const volatile int32_t* stop);

// Formats the record for the terminal: each line of the text is indented and marked with a bar.
std::string sample_text(const SampleRecord& sample, bool with_prompt);

}  // namespace ds
