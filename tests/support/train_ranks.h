#pragma once
#include <string>

#include "core/base/json.h"
#include "run/train.h"

namespace ds::test {

// All ranks of one run, as threads: the report of rank 0, or the error of the lowest rank that has
// one. Unlike run_ranks(), nothing aborts the group for a rank that throws: the run itself must end
// the others.
RunReport train_on(int ranks, const Json& config, const TrainOptions& options);

// A run that says nothing, new or on from `resume`.
RunReport train_quietly(int ranks, const Json& config, const std::string& resume = "");

// The message of a run on one rank that ends with an error of that status; a failure of the test
// otherwise.
std::string train_error(const Json& config, ds_status status, const TrainOptions& options);

}  // namespace ds::test
