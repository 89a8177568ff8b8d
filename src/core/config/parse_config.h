#pragma once
#include <cstdint>

#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/refusals.h"

namespace ds {

// Parses a document: DeepSpeed's ds_config keys with DeepSpeed's meaning, and libds keys, all
// listed in docs/reference/config.md. Unknown and misspelt keys are refused by full path with a
// suggestion; contradictions name both keys and values; known DeepSpeed keys that libds lacks are
// refused as unsupported, by path. All errors are DS_ERROR_CONFIG. `world` is the number of
// data-parallel ranks, for the batch triangle.
Config parse_config(const Json& document, int world);
// As above, but collects all refusals instead of throwing the first one. The result has the values
// of the keys that were not refused.
Config parse_config(const Json& document, int world, ConfigRefusals& refusals);

// Adds a warning for each section that has other keys but no "enabled", without which the section
// is off.
void warn_of_forgotten_switches(Config& config);

}  // namespace ds
