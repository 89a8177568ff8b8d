#pragma once

#include "core/config/config.h"
#include "core/config/document.h"
#include "core/config/key.h"

namespace ds {

// Appends the keys of optimizer.
void optimizer_keys(KeyList& keys);

// These functions complete the section from other keys and refuse contradictions within it.
void complete_state_types(Config& config);
void complete_optimizer(Config& config, const ConfigDocument& document);

}  // namespace ds
