#pragma once
#include <string>

#include "core/config/config.h"

namespace ds {

// A configuration as `libds config` shows it: every value with its origin, the keys without effect, warnings,
// and all refusals at once.
std::string config_text(const Config& config, const ConfigRefusals& refusals);
// The same as an object: schema, config and origins as of Config::effective, without_effect, warnings,
// refused.
Json config_json(const Config& config, const ConfigRefusals& refusals);

// Writes the warnings to the log, a line each.
void log_warnings(const Config& config);

}  // namespace ds
