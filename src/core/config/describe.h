#pragma once
#include <string>

#include "core/config/config.h"
#include "core/config/refusals.h"

namespace ds {

// Returns the text that `libds config` prints: all refusals, the warnings, the keys without effect,
// and every value that applies with its origin. A refused value is shown as `document` gives it.
std::string config_text(const Config& config, const ConfigRefusals& refusals, const Json& document);
// Returns the content of config_text() as a JSON object. It has the members of Config::effective()
// (schema, config and origins), and without_effect, warnings and refusals.
Json config_json(const Config& config, const ConfigRefusals& refusals, const Json& document);

// Writes each warning to the log as a line.
void log_warnings(const Config& config);

}  // namespace ds
