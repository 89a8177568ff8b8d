#include "offload/keys.h"

#include <fmt/core.h>

#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/tier.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

const KeyWords kTiers{"none", "cpu", "nvme"};

// Returns the key nvme_path of an offload section. Both sections have the key, but libds uses one
// scratch folder: a section that does not offload to files sets the folder only if the other
// section has not set it.
Key nvme_path_key(const std::string& section, Tier ZeroConfig::*tier, Tier ZeroConfig::*other,
                  const char* doc) {
  const std::string path = section + "nvme_path";
  auto set = [path, tier, other](Config& c, const Json& given) {
    const std::string folder = read_value<std::string>(path, given);
    const bool first = c.zero.nvme_path.empty();
    if (!first && c.zero.*tier != Tier::nvme) return;
    if (!first && c.zero.*other == Tier::nvme && c.zero.nvme_path != folder) {
      refuse(path, "\"{}\" differs from \"{}\" of the other offload section; one folder is used",
             folder, c.zero.nvme_path);
    }
    c.zero.nvme_path = folder;
  };
  auto get = [tier](const Config& c) {
    return c.zero.*tier == Tier::nvme ? Json(c.zero.nvme_path) : Json();
  };
  return {path, set, get, KeyKind::text, doc};
}

}  // namespace

void offload_optimizer_keys(KeyList& keys) {
  using Z = ZeroConfig;
  const std::string section = "zero_optimization.offload_optimizer.";
  KeyRows rows(keys, section, &Config::zero);
  rows.add("device", &Z::optimizer_tier,
           "`none`, `cpu`, `nvme`: tier of optimizer states and gradient accumulators, in every "
           "stage")
      .words = kTiers;
  rows.put(nvme_path_key(section, &Z::optimizer_tier, &Z::param_tier,
                         "folder of the scratch files; required with nvme"));
  rows.add("buffer_count", &Z::buffer_count,
           "with states in files: the number of sub-groups for which host memory has slots, 16 "
           "bytes per element (gradient, master, two moments). Loads before an update and saves "
           "after it use these slots; gradients for which there is no slot are read back for the "
           "update",
           positive);
}

void offload_param_keys(KeyList& keys) {
  using Z = ZeroConfig;
  const std::string section = "zero_optimization.offload_param.";
  KeyRows rows(keys, section, &Config::zero);
  rows.add("device", &Z::param_tier, "tier of parameter shards; takes effect in stage 3").words =
      kTiers;
  rows.put(nvme_path_key(section, &Z::param_tier, &Z::optimizer_tier,
                         "as `offload_optimizer.nvme_path`; if both sections offload to nvme, they "
                         "must name the same folder"));
}

void aio_keys(KeyList& keys) {
  KeyRows rows(keys, "aio.", &Config::aio);
  rows.add("block_size", &AioConfig::block_size,
           "bytes of one request, a multiple of 512, at most 1 GiB",
           Limits{.low = 512, .high = 1 << 30});
  rows.add("queue_depth", &AioConfig::queue_depth,
           "the largest number of requests in flight at one time", Limits{.low = 1, .high = 65536});
}

// In addition to tiers, checks shard groups: mics_shard_size and zero_hpz_partition_size both
// choose one, so they exclude each other.
void check_tiers(const Config& c) {
  const bool nvme = c.zero.optimizer_tier == Tier::nvme || c.zero.param_tier == Tier::nvme;
  if (nvme && c.zero.nvme_path.empty()) {
    const char* section =
        c.zero.optimizer_tier == Tier::nvme ? "offload_optimizer" : "offload_param";
    refuse(fmt::format("zero_optimization.{}.nvme_path", section), "missing; device is \"nvme\"");
  }
  if (c.zero.mics_shard_size == 0) {
    refuse("zero_optimization.mics_shard_size", "must be -1 or at least 1, got 0");
  }
  if (c.zero.mics_shard_size > 0 && c.zero.hpz_partition_size > 1) {
    raise(DS_ERROR_CONFIG,
          "{} {} and zero_optimization.zero_hpz_partition_size {} exclude each other",
          KeyName("zero_optimization.mics_shard_size"), c.zero.mics_shard_size,
          c.zero.hpz_partition_size);
  }
  if (c.zero.hpz_partition_size > 1 && c.zero.param_tier == Tier::nvme) {
    raise(
        DS_ERROR_CONFIG,
        "{} {} needs parameters in memory, but zero_optimization.offload_param.device is \"nvme\"",
        KeyName("zero_optimization.zero_hpz_partition_size"), c.zero.hpz_partition_size);
  }
  if (c.aio.block_size % 512 != 0) {
    refuse("aio.block_size", "{} is not a multiple of 512", c.aio.block_size);
  }
}

}  // namespace ds
