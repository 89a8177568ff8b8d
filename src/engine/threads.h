#pragma once
#include "core/config/config.h"

namespace ds {

// Compute threads of a rank: run.threads, or else the cores that this process may use divided by the ranks of
// this host (LOCAL_SIZE of `libds launch`, otherwise `world`); at least 1.
int threads_of_rank(const Config& config, int world);

}  // namespace ds
