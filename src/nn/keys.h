#pragma once

#include "core/config/config.h"
#include "core/config/key.h"

namespace ds {

// Appends the keys of the section `model`: those of the built-in model and of a model folder. If
// the caller provides the graph, a configuration has neither.
void model_keys(KeyList& keys);

// Fills in the missing sizes of a built-in model, and refuses keys that contradict a model folder.
void complete_model(Config& config);

}  // namespace ds
