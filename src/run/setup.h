#pragma once
#include "compile/pipeline.h"
#include "core/base/json.h"
#include "nn/models/hf.h"

namespace ds {

// Applies a JSON merge patch (RFC 7396): members of patch replace those of document, objects are merged,
// null removes.
void merge_patch(Json& document, const Json& patch);

// The programs of a run's engine beside training and evaluation: text is continued for the sample, within a
// sequence.
PlanPrograms run_programs(const Config& config, const HfModel& model);

}  // namespace ds
