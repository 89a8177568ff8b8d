#pragma once

#include "core/config/config.h"
#include "core/config/document.h"
#include "core/config/key.h"

namespace ds {

// Appends the keys of optimizer.
void optimizer_keys(KeyList& keys);

// Completes and checks the types of masters and states.
void complete_state_types(Config& config);
// Completes the values of optimizer that follow from other keys, and refuses contradictions within
// the section.
void complete_optimizer(Config& config, const ConfigDocument& document);

}  // namespace ds
