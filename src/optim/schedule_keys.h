#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/config/document.h"
#include "core/config/key.h"

namespace ds {

// Appends the keys of scheduler.
void scheduler_keys(KeyList& keys);

// Sets the keys of scheduler that were given as "auto", and adds the keys of zero_optimization that
// were to config.waiting. `steps` is the number of steps of the run.
void complete_auto(Config& config, const ConfigDocument& document, int64_t steps);

}  // namespace ds
