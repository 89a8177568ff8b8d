// The keys of zero_optimization, except its offload sections (offload/keys.cpp).
//
// DeepSpeed has two names for many keys of stage 3, with and without "stage3_"; also() adds the
// name without it. Sizes are in elements, as in DeepSpeed.
#include "zero/keys.h"

#include <fmt/core.h>

#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/tier.h"
#include "core/config/needs.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

const std::string kSection = "zero_optimization.";
constexpr const char *kQuantized = "zero_optimization.zero_quantized_gradients",
                     *kBits = "zero_optimization.zero_quantized_gradients_bits";

// Appends the keys of zeropp_loco_param. Setting either key turns error feedback on.
void feedback_keys(KeyList& keys) {
  KeyRows rows(keys, kSection + "zeropp_loco_param.", &Config::zero);
  rows.only(&ZeroConfig::error_feedback);
  const auto turn_on = [](Config& c) { c.zero.error_feedback = true; };
  rows.add("err_beta", &ZeroConfig::err_beta,
           "LoCo: the error that is added to the next gradient is err_beta times the previous "
           "error plus (1 - err_beta) times what the current quantization has lost; 0 is plain "
           "error feedback. Either key of the section turns error feedback on. It takes 4 bytes on "
           "the device for each element that a rank quantizes. Errors are part of a checkpoint and "
           "start at 0 when another number of ranks loads it",
           decay)
      .then(turn_on);
  rows.add("reset_T", &ZeroConfig::err_reset, "number of steps after which errors start at 0 again",
           positive)
      .then(turn_on);
}

}  // namespace

void zero_keys(KeyList& keys) {
  using Z = ZeroConfig;
  KeyRows rows(keys, kSection, &Config::zero);
  rows.add("stage", &Z::stage,
           "0: nothing is partitioned; 1: optimizer states; 2: also gradients; 3: also parameters",
           Limits{.low = 0, .high = 3});
  rows.add("reduce_bucket_size", &Z::reduce_bucket_size,
           "the largest number of elements of a bucket with more than one parameter. Without the "
           "key it is 16777216 in delegate mode, where gradients of a bucket wait until all have "
           "arrived",
           positive_elements);
  rows.add("stage3_prefetch_bucket_size", &Z::prefetch_bucket_size,
           "the largest number of elements that are gathered ahead of their use (also "
           "`prefetch_bucket_size`)",
           elements)
      .also("prefetch_bucket_size");
  rows.add("stage3_max_live_parameters", &Z::max_live_parameters,
           "the largest number of elements that are gathered at one time (also "
           "`max_live_parameters`). The limit is soft: an operation may read more, and a delegate "
           "host may lease more at once; then nothing else is kept or prefetched",
           elements)
      .also("max_live_parameters");
  rows.add("stage3_max_reuse_distance", &Z::max_reuse_distance,
           "a parameter stays gathered until its next use if the parameters used in between have "
           "at most this many elements (also `max_reuse_distance`)",
           elements)
      .also("max_reuse_distance");
  rows.add("stage3_param_persistence_threshold", &Z::param_persistence_threshold,
           "parameters of at most this many elements always stay gathered (also "
           "`param_persistence_threshold`)",
           elements)
      .also("param_persistence_threshold");
  rows.add("stage3_model_persistence_threshold", &Z::model_persistence_threshold,
           "the largest number of elements that all parameters which always stay gathered may have "
           "together (also `model_persistence_threshold`)",
           not_negative)
      .also("model_persistence_threshold")
      .shown("2^63-1");
  rows.add(
      "sub_group_size", &Z::sub_group_size,
      "the largest number of elements of a rank that one update instruction covers; 0: 1,048,576",
      elements);
  rows.add("overlap_comm", &Z::overlap_comm,
           "transfers are prefetched and overlap with compute; the bits do not depend on this key");
  rows.add("enable_sanity_checks", &Z::sanity_checks,
           "delegate mode: the memory of a partitioned parameter becomes NaN when its lease ends, "
           "so that a host that reads it later notices. Steps run call by call, without prefetch; "
           "the bits do not depend on this key");
}

void shard_group_keys(KeyList& keys) {
  using Z = ZeroConfig;
  KeyRows rows(keys, kSection, &Config::zero);
  rows.add("mics_shard_size", &Z::mics_shard_size,
           "MiCS: the number of neighbouring ranks that together hold the complete state; other "
           "such groups hold copies. It must be a power of two that divides the number of ranks, "
           "and needs stage 3. -1: all ranks",
           Limits{.low = -1, .high = kMost});
  rows.add("mics_hierarchical_params_gather", &Z::mics_hierarchical_gather,
           "a shard group that spans several nodes gathers in two steps: between the nodes, then "
           "inside each node");
  rows.add("zero_hpz_partition_size", &Z::hpz_partition_size,
           "hpZ: the number of neighbouring ranks that together hold all parameters (not states), "
           "so that gathers stay within them. It needs stage 3 and excludes parameters on nvme. 1: "
           "parameters are partitioned like the states",
           count);
}

void code_keys(KeyList& keys) {
  using Z = ZeroConfig;
  KeyRows rows(keys, kSection, &Config::zero);
  rows.add("zero_quantized_weights", &Z::quantized_weights,
           "qwZ: gathers carry 8-bit codes of the parameters, with a scale for every 256 elements. "
           "Kernels see the decoded values; masters stay exact. The key needs stage 3; parameters "
           "that always stay gathered are not encoded");
  rows.add("zero_quantized_gradients", &Z::quantized_gradients,
           "qgZ: at each level, ranks exchange codes of their gradients or, from the second level "
           "on, of their sums, and add up the decoded values in f32. The key needs stage 2 or 3");
  rows.add("zero_quantized_gradients_bits", &Z::gradient_bits,
           "number of bits of these codes: 4 or 8", Limits{.low = 4, .high = 8})
      .when([](const Config& c) { return c.zero.quantized_gradients; });
  feedback_keys(keys);
}

// Only the gathers of stage 3, before a kernel reads a parameter, can carry codes
// (gather_bucket()); the gathers after the update in stages 1 and 2 do not. Codes of gradients need
// stage 2 or 3, where gradients are partitioned; stages 0 and 1 have gradient_compression instead
// (update/keys.cpp).
void check_quantization(const Config& c) {
  using enum ConfigNeed::Kind;
  static const std::vector<ConfigNeed> stages{
      {"zero_optimization.zero_quantized_weights",
       {"true"},
       needs,
       "zero_optimization.stage",
       {"3"},
       "",
       " true needs zero_optimization.stage 3, got {1}"},
      {kQuantized,
       {"true"},
       needs,
       "zero_optimization.stage",
       {"2", "3"},
       "",
       " true needs zero_optimization.stage 2 or 3, got {1}"}};
  check_needs(c, stages);
  if (c.zero.gradient_bits != 4 && c.zero.gradient_bits != 8)
    refuse(kBits, "must be 4 or 8, got {}", c.zero.gradient_bits);
  static const std::vector<ConfigNeed> codes{
      {kBits, {}, needs, kQuantized, {"true"}},
      {"zero_optimization.zeropp_loco_param.err_beta", {}, needs, kQuantized, {"true"}},
      {"zero_optimization.zeropp_loco_param.reset_T", {}, needs, kQuantized, {"true"}}};
  check_needs(c, codes);
}

// The formulas are those of Hugging Face's integration (transformers/integrations/deepspeed.py).
void fill_from_model(Config& config, int64_t hidden) {
  for (const std::string& path : config.waiting) {
    ZeroConfig& zero = config.zero;
    if (path.ends_with(".reduce_bucket_size")) {
      zero.reduce_bucket_size = hidden * hidden;
    } else if (path.ends_with("_prefetch_bucket_size")) {
      zero.prefetch_bucket_size = static_cast<int64_t>(0.9 * static_cast<double>(hidden * hidden));
    } else {
      zero.param_persistence_threshold = 10 * hidden;
    }
    config.origins[path] = "auto";
  }
  config.waiting.clear();
}

void fill_from_own_model(Config& config) {
  if (config.model.hidden > 0) fill_from_model(config, config.model.hidden);
}

}  // namespace ds
