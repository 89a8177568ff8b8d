#pragma once
#include <string>

#include "core/config/config.h"

namespace ds {

// A configuration as `libds config` shows it: all refusals at once, warnings, the keys without
// effect, and every value with its origin; a refused one as `document` gives it.
std::string config_text(const Config& config, const ConfigRefusals& refusals, const Json& document);
// The same as an object: schema, config and origins as of Config::effective, without_effect,
// warnings, refused.
Json config_json(const Config& config, const ConfigRefusals& refusals, const Json& document);

// Writes the warnings to the log, a line each.
void log_warnings(const Config& config);

}  // namespace ds
