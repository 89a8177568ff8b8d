#pragma once
#include <span>

#include "core/config/config.h"
#include "core/program/granules.h"
#include "core/program/levels.h"
#include "core/program/mesh.h"
#include "zero/row_tables.h"
#include "zero/zero_plan.h"

namespace ds {

// Returns the levels that a ZeRO stage cuts each kind of state over, and the tier where each lives.
Policy make_policy(const ZeroConfig& zero, const RankLevels& levels);

// Returns the levels of the ranks of a group: memory nodes if levels are "auto", nodes if there are
// several, the shard group of mics_shard_size or zero_hpz_partition_size, and the whole group. A
// group that is smaller than `data` and smaller than a shard group has no level for shard groups.
// The number of ranks of a block smaller than the group must be a power of two, so that sums are
// added in the same order as without levels; nodes of other sizes do not become levels. Throws
// DS_ERROR_CONFIG if the number of nodes or the size of a shard group does not fit the ranks.
RankLevels make_levels(const Config& config, const Mesh& mesh, RankGroup group,
                       const Machine& machine);

// Sets how parameters are trained from now on. Parameters that have states keep them. A bucket that
// is trained for the first time gets states, whose buffers come after all others, so that existing
// buffers keep their places. Throws DS_ERROR_CONFIG if all parameters are frozen.
void set_trained(ZeroPlan& plan, const OptimizerConfig& config, const TrainedParams& trained);

// Returns the layout and the states of the parameters under the configuration; the caller adds
// inputs and the loss. Without `training` the plan has no states, and each parameter is its own
// master, in the compute type. `tables` are the parameters that config.sparse_gradients may reduce
// as rows.
ZeroPlan make_zero_plan(const Config& config, IdVector<ParamId, ParamSpec> params, int rank,
                        const Mesh& mesh, const Machine& machine, bool training = true,
                        std::span<const RowTable> tables = {});

}  // namespace ds
