#pragma once
#include <string>

#include "core/base/json.h"
#include "run/train.h"

namespace ds::test {

// Runs all ranks of a training run as threads. Returns the report of rank 0, or throws the error of
// the lowest rank that failed. Unlike run_ranks(), a rank that throws does not abort the group: the
// run itself must end the other ranks.
RunReport train_on(int ranks, const Json& config, const TrainOptions& options);

// Trains without log lines, from scratch or from the checkpoint `resume`.
RunReport train_quietly(int ranks, const Json& config, const std::string& resume = "");

// Returns the message of a run on one rank that must fail with an error of this status; otherwise
// the test fails.
std::string train_error(const Json& config, ds_status status, const TrainOptions& options);

}  // namespace ds::test
