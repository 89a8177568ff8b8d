#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/config/config.h"
#include "core/graph/graph.h"

namespace ds {

// Returns 1 for each parameter whose name matches a pattern of frozen_parameters, with '*' and '?'
// as in file names. Throws DS_ERROR_CONFIG naming a pattern that matches no parameter.
IdVector<ParamId, char> frozen_by_name(const std::vector<std::string>& patterns,
                                       const IdVector<ParamId, std::string>& names);
// Returns the group of each parameter: one more than its index in config.groups, or 0 if
// no group contains the parameter. Throws DS_ERROR_CONFIG for a pattern that matches no parameter
// and for a parameter in two groups. `dims` holds the number of dimensions of each parameter, which
// only optimizer.no_decay needs.
IdVector<ParamId, int32_t> groups_by_name(const OptimizerConfig& config,
                                          const IdVector<ParamId, std::string>& names,
                                          const IdVector<ParamId, size_t>& dims = {});

}  // namespace ds
