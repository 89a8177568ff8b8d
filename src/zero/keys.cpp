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
           "LoCo: error' = err_beta error + (1 - err_beta) loss of this time, which is added to "
           "the next gradient; 0 is plain error feedback. Either key of the section turns it on; "
           "it takes 4 bytes for each element that a rank quantizes, on the device; errors are "
           "part of a checkpoint and begin at 0 when another number of ranks loads it",
           decay)
      .then(turn_on);
  rows.add("reset_T", &ZeroConfig::err_reset, "steps after which errors begin at 0 again", positive)
      .then(turn_on);
}

}  // namespace

void zero_keys(KeyList& keys) {
  using Z = ZeroConfig;
  KeyRows rows(keys, kSection, &Config::zero);
  rows.add("stage", &Z::stage, "0 to 3: nothing, states, gradients, parameters partitioned",
           Limits{.low = 0, .high = 3});
  rows.add("reduce_bucket_size", &Z::reduce_bucket_size, "elements of one gradient bucket",
           positive_elements);
  rows.add("stage3_prefetch_bucket_size", &Z::prefetch_bucket_size,
           "elements gathered ahead (also `prefetch_bucket_size`)", elements)
      .also("prefetch_bucket_size");
  rows.add("stage3_max_live_parameters", &Z::max_live_parameters,
           "elements gathered at one time (also `max_live_parameters`). The limit is soft: what "
           "one operation reads, or a delegate host leases at once, may exceed it, and then "
           "nothing is kept or prefetched beside",
           elements)
      .also("max_live_parameters");
  rows.add("stage3_max_reuse_distance", &Z::max_reuse_distance,
           "a parameter used again within so many elements stays gathered (also "
           "`max_reuse_distance`)",
           elements)
      .also("max_reuse_distance");
  rows.add("stage3_param_persistence_threshold", &Z::param_persistence_threshold,
           "parameters of at most so many elements stay gathered (also "
           "`param_persistence_threshold`)",
           elements)
      .also("param_persistence_threshold");
  rows.add("stage3_model_persistence_threshold", &Z::model_persistence_threshold,
           "elements that all parameters which stay gathered may have (also "
           "`model_persistence_threshold`): a parameter that would exceed them does not stay",
           not_negative)
      .also("model_persistence_threshold")
      .shown("2^63-1");
  rows.add("sub_group_size", &Z::sub_group_size,
           "elements per rank of one update instruction; 0: 1,048,576", elements);
  rows.add("overlap_comm", &Z::overlap_comm, "prefetch and overlap; never changes bits");
  rows.add("enable_sanity_checks", &Z::sanity_checks,
           "delegate mode: the memory of a partitioned parameter becomes NaN when its lease ends, "
           "so that a host that reads it later notices. Costs gathers and memory; never changes "
           "bits");
}

void shard_group_keys(KeyList& keys) {
  using Z = ZeroConfig;
  KeyRows rows(keys, kSection, &Config::zero);
  rows.add("mics_shard_size", &Z::mics_shard_size,
           "MiCS: neighbouring ranks that hold all state among them, other such groups hold "
           "copies; stage 3. A power of two that divides the ranks. -1: all ranks",
           Limits{.low = -1, .high = kMost});
  rows.add("mics_hierarchical_params_gather", &Z::mics_hierarchical_gather,
           "gathers inside a shard group of several nodes go node by node");
  rows.add("zero_hpz_partition_size", &Z::hpz_partition_size,
           "hpZ: neighbouring ranks that hold all parameters (not states) among them, so that "
           "gathers stay among them; stage 3, not with parameters on nvme. 1: as the states",
           count);
}

void code_keys(KeyList& keys) {
  using Z = ZeroConfig;
  KeyRows rows(keys, kSection, &Config::zero);
  rows.add(
      "zero_quantized_weights", &Z::quantized_weights,
      "qwZ: gathers carry 8-bit codes of the parameters, a scale every 256 elements; what computes "
      "sees them rounded to codes, masters stay exact. Stage 3; small parameters stay as they are");
  rows.add("zero_quantized_gradients", &Z::quantized_gradients,
           "qgZ: at each level ranks send each other codes of their gradients, and of sums, and "
           "add up in f32. Stages 2 and 3");
  rows.add("zero_quantized_gradients_bits", &Z::gradient_bits, "bits of these codes: 4 or 8",
           Limits{.low = 4, .high = 8})
      .when([](const Config& c) { return c.zero.quantized_gradients; });
  feedback_keys(keys);
}

// Weights travel only in stage 3. Gradients travel as parts of buckets only in stages 2 and 3;
// stages 0 and 1 have gradient_compression instead (update/keys.cpp).
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
