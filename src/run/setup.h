#pragma once
#include "comm/communicator.h"
#include "core/config/config.h"

namespace ds {

// Compute threads of this rank: config.threads, or the cores this process may use divided by the ranks.
int rank_threads(const Config& config, const Communicator& comm);

// Applies a JSON merge patch (RFC 7396): members of patch replace those of document, objects are merged,
// null removes.
void merge_patch(Json& document, const Json& patch);

}  // namespace ds
