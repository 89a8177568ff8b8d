#pragma once
#include <cstdint>

#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/refusals.h"

namespace ds {

// Parses a document: DeepSpeed's ds_config keys with DeepSpeed's meaning, and libds keys, all
// listed in docs/reference/config.md. Misspelt keys are refused by full path with a suggestion, and
// contradictions with both keys and values. Keys of DeepSpeed whose values request what libds lacks
// are refused as unsupported. An unknown key of the top level that resembles no known key is only
// warned of. All errors of the document are DS_ERROR_CONFIG. `world` is the number of data-parallel
// ranks, for the batch triangle.
Config parse_config(const Json& document, int world);
// Like the function above, but collects the refusals of keys instead of throwing them. The result
// has the values of all keys that were not refused.
Config parse_config(const Json& document, int world, ConfigRefusals& refusals);

// Adds a warning for each section that is off because its "enabled" is missing, although the
// document gives other keys of the section.
void warn_of_forgotten_switches(Config& config);

}  // namespace ds
