#pragma once
#include <cstdint>

#include "checkpoint/checkpoint.h"
#include "compile/pipeline.h"
#include "core/base/json.h"
#include "engine/options.h"
#include "nn/models/hf.h"

namespace ds {

// Applies a JSON merge patch (RFC 7396): members of patch replace those of document, objects are
// merged, null removes.
void merge_patch(Json& document, const Json& patch);

// Refuses keys of masking beside a model that predicts the next token.
void check_masking_keys(const Config& config, const HfModel& model);

// Refuses a curriculum by length beside a model that sees what comes later.
void check_curriculum_model(const Config& config, const HfModel& model);

// Refuses, by the key, a resumed run whose samples would have another order than those of its
// checkpoint: their place in it would be a place of other text.
void check_order(const Config& config, const CheckpointInfo& saved);

// Tokens of the text that a run's sample continues, at most.
inline constexpr int64_t kSamplePrompt = 48;

// What a run makes its engine with, where so many of its ranks are on this machine.
EngineOptions run_engine_options(const Config& config, const HfModel& model, int local_ranks);

// The programs of a run's engine beside training and evaluation: text is continued for the sample,
// with caches for the sample or for a sequence, whichever is shorter. A masked language model
// continues none.
PlanPrograms run_programs(const Config& config, const HfModel& model);

}  // namespace ds
