#pragma once
#include <cstdint>
#include <string>

#include "checkpoint/checkpoint.h"
#include "compile/pipeline.h"
#include "compile/plan.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "data/curriculum.h"
#include "engine/checkpoints.h"
#include "engine/options.h"
#include "nn/models/hf.h"
#include "run/run_log.h"

namespace ds {

// Applies a JSON merge patch (RFC 7396): a member of `patch` replaces the member of the same name
// in `document`, objects are merged, and null removes a member.
void merge_patch(Json& document, const Json& patch);

// Throws if keys of masking are given but the model predicts the next token.
void check_masking_keys(const Config& config, const HfModel& model);

// Throws if a curriculum by length is enabled but the model also attends to later tokens.
void check_curriculum_model(const CurriculumKeys& keys, const HfModel& model);

// Throws, naming the key, if a resumed run would order its samples differently than its checkpoint,
// because the same index would then mean another sample.
void check_order(const Config& config, const CheckpointInfo& saved);

// Returns the document of a new run with absolute paths of the folders that are read again later:
// those of the model and of adapters.
Json with_absolute_folders(Json document);

// Loads the weights that a new run starts from: those of the model's folder, unless they are drawn,
// and those of the adapter's folder. Collective.
void load_folders(Checkpoints& checkpoints, const Config& config);

// Notes the folder that a run has exported and, for a run on a GGUF file, the command that makes
// such a file of the folder.
void note_export(RunLog& log, const Config& config, const std::string& exported);

// Most tokens in the prompt of a sample text.
inline constexpr int64_t kSamplePrompt = 48;

// Returns the options of a run's engine with `local_ranks` ranks on this machine.
EngineOptions run_engine_options(const Config& config, const HfModel& model, int local_ranks);

// Returns the programs of a run's engine other than training and evaluation: a program that
// generates the sample text, with caches for the length of that text or of a sequence, whichever is
// shorter. A masked language model, or a run with run.sample_tokens 0, has no such program.
PlanPrograms run_programs(const Config& config, const HfModel& model);

}  // namespace ds
