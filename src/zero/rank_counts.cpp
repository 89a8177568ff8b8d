#include "zero/rank_counts.h"

#include <bit>
#include <cstdint>

#include "core/base/error.h"
#include "core/config/document.h"
#include "core/config/refusals.h"

namespace ds {

// Throws if the configuration has shard groups and the stage is below 3, or the size of a shard
// group does not divide the number of ranks, or the size is neither a power of two nor all ranks.
void check_shard_group(const ZeroConfig& zero, int ranks) {
  const int64_t size = zero.shard_group();
  if (size == 0) return;
  const char* key = zero.mics_shard_size > 0 ? "zero_optimization.mics_shard_size"
                                             : "zero_optimization.zero_hpz_partition_size";
  if (zero.stage < 3)
    raise(DS_ERROR_CONFIG, "{} {} needs zero_optimization.stage 3, got {}", KeyName(key), size,
          zero.stage);
  if (size > ranks || ranks % size != 0)
    raise(DS_ERROR_CONFIG, "{} must divide the number of ranks, got {} and {}", KeyName(key), size,
          ranks);
  if (size < ranks && !std::has_single_bit(static_cast<uint64_t>(size))) {
    raise(DS_ERROR_CONFIG, "{} must be a power of two or all {} ranks, got {}", KeyName(key), ranks,
          size);
  }
}

void check_nodes(int64_t nodes, int ranks) {
  if (nodes > 0 && ranks % nodes != 0) {
    raise(DS_ERROR_CONFIG, "{} must divide the number of ranks, got {} and {}",
          KeyName("topology.nodes"), nodes, ranks);
  }
}

void check_rank_counts(const Config& config, int ranks, ConfigRefusals& refusals) {
  collect(refusals, Causes::others, [&] { check_nodes(config.nodes, ranks); });
  collect(refusals, Causes::others, [&] { check_shard_group(config.zero, ranks); });
}

}  // namespace ds
