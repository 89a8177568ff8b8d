#pragma once
#include <cstdint>

#include "core/config/config.h"
#include "core/config/document.h"
#include "core/config/key.h"

namespace ds {

// Appends the keys of scheduler.
void scheduler_keys(KeyList& keys);

// Fills in the values of keys that were given as "auto" and follow other keys. `steps` is the
// number of steps of the run.
void complete_auto(Config& config, const ConfigDocument& document, int64_t steps);

}  // namespace ds
