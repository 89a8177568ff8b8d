#pragma once
#include <string>

#include "core/config/config.h"
#include "optim/param_groups.h"

namespace ds {

// Rules that the keys of rates must satisfy together. Keys that contradict each other cause
// DS_ERROR_CONFIG, which names one of them.

// Completes both rates of Muon as DeepSpeed does: each is the given rate, else lr, else the default
// for matrices or for the other parameters.
void complete_rates(Config& config);
// Completes the numbers of a schedule that the document leaves out. Call complete_rates() before.
void complete_schedule(Config& config);
// Checks the values of the group that `path` names against the optimizer and the schedule.
void check_group(const Config& config, const ParamGroup& group, const std::string& path);
// Checks the values of every group of the configuration.
void check_groups(const Config& config);

}  // namespace ds
