#pragma once
#include <string>

#include "core/config/config.h"
#include "core/config/param_groups.h"

namespace ds {

// What the keys of rates ask of each other. What does not fit throws DS_ERROR_CONFIG with the key.

// Both rates of Muon, as in DeepSpeed: what is given for a half, else lr, else the default of the
// half.
void complete_rates(Config& config);
// The numbers of a schedule that the document leaves out; behind complete_rates().
void complete_schedule(Config& config);
// The values of a group, which `path` names, beside those of the optimizer and of the schedule.
void check_group(const Config& config, const ParamGroup& group, const std::string& path);
// Those of every group of the configuration.
void check_groups(const Config& config);

}  // namespace ds
