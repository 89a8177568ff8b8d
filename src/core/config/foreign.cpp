#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/nearest_path.h"
#include "core/config/schema.h"

namespace ds {
namespace {

using Rule = ForeignKey::Rule;

void no_effect(std::vector<ForeignKey>& keys, const std::string& prefix, std::vector<std::string> names) {
  for (std::string& name : names) keys.push_back({prefix + name, Rule::no_effect, {}, {}});
}

void only(std::vector<ForeignKey>& keys, const std::string& prefix,
          std::vector<std::pair<std::string, Json>> names) {
  for (auto& [name, neutral] : names) keys.push_back({prefix + name, Rule::only, neutral, {}});
}

void section(std::vector<ForeignKey>& keys, std::string name, std::vector<std::string> inside = {}) {
  keys.push_back({std::move(name), Rule::section, {}, std::move(inside)});
}

void top_level(std::vector<ForeignKey>& keys) {
  no_effect(keys, "",
            {"dump_state", "memory_breakdown", "wall_clock_breakdown", "disable_allgather",
             "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "log_level", "vocabulary_size",
             "dataloader_drop_last"});
  no_effect(keys, "timers.throughput.", {"enabled", "synchronized"});
  only(keys, "",
       {{"managed_gradient_accumulation", true},
        {"communication_data_type", "fp32"},
        {"seq_parallel_communication_data_type", "fp32"},
        {"prescale_gradients", false},
        {"gradient_predivide_factor", 1.0},
        {"gradient_allreduce_op", "mean"},
        {"graph_harvesting", false},
        {"use_data_before_expert_parallelism", false},
        {"sequence_parallel_size", 1},
        {"durable", 0},
        {"deepspeed_compat", false}});
  only(keys, "data_types.",
       {{"grad_accum_dtype", "fp32"}, {"param_dtype", Json()}, {"buffer_dtype", Json()}});
  only(keys, "optimizer.", {{"legacy_fusion", false}});
  no_effect(keys, "optimizer.params.",
            {"torch_adam", "foreach", "fused", "differentiable", "cuda_aware", "comm_backend_name"});
  only(keys, "optimizer.params.",
       {{"amsgrad", false},
        {"bias_correction", true},
        {"fp32_optimizer_states", true},
        {"dampening", 0.0},
        {"maximize", false}});
  only(keys, "scheduler.params.", {{"last_batch_iteration", -1}});
}

void precision(std::vector<ForeignKey>& keys) {
  section(keys, "fp16",
          {"auto_cast", "loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
           "consecutive_hysteresis", "min_loss_scale", "fp16_master_weights_and_grads"});
  section(keys, "torch_autocast", {"dtype", "lower_precision_safe_modules"});
  section(keys, "amp");
  only(keys, "bf16.",
       {{"immediate_grad_update", false},
        {"check_grad_overflow", true},
        {"bf16_master_weights_and_grads", false},
        {"bf16_optimizer_states", false}});
}

void zero(std::vector<ForeignKey>& keys) {
  const std::string zero = "zero_optimization.";
  no_effect(keys, zero,
            {"contiguous_gradients", "reduce_scatter", "use_multi_rank_bucket_allreduce",
             "allgather_partitions", "allgather_bucket_size", "elastic_checkpoint", "round_robin_gradients",
             "memory_efficient_linear", "override_module_apply", "log_trace_cache_warnings",
             "enable_sanity_checks", "save_muon_momentum_buffer_in_memory", "cpu_offload_use_pin_memory"});
  only(keys, zero,
       {{"load_from_fp32_weights", true},
        {"ignore_unused_parameters", true},
        {"compute_grad_norm", true},
        {"stage3_model_persistence_threshold", int64_t{9223372036854775807}},
        {"model_persistence_threshold", int64_t{9223372036854775807}},
        {"stage3_gather_16bit_weights_on_model_save", false},
        {"gather_16bit_weights_on_model_save", false},
        {"stage3_gather_fp16_weights_on_model_save", false},
        {"stage3_module_granularity_threshold", 0},
        {"module_granularity_threshold", 0},
        {"stage3_use_all_reduce_for_fetch_params", false},
        {"use_all_reduce_for_fetch_params", false},
        {"stage3_allgather_sequential", false},
        {"zero_quantized_nontrainable_weights", false},
        {"pipeline_loading_checkpoint", false},
        {"leaf_module", Json()},
        {"legacy_stage1", false},
        {"zenflow", Json()}});
  no_effect(keys, zero + "offload_optimizer.",
            {"pin_memory", "pipeline_read", "pipeline_write", "fast_init", "cpuadam_cores_perc"});
  only(keys, zero + "offload_optimizer.", {{"ratio", 1.0}, {"super_offload", false}});
  no_effect(keys, zero + "offload_param.", {"pin_memory", "buffer_count", "buffer_size", "max_in_cpu"});
}

void other_sections(std::vector<ForeignKey>& keys) {
  no_effect(keys, "aio.", {"intra_op_parallelism", "single_submit", "overlap_events"});
  only(keys, "aio.", {{"use_gds", false}});
  only(keys, "activation_checkpointing.",
       {{"partition_activations", false},
        {"number_checkpoints", Json()},
        {"contiguous_memory_optimization", false},
        {"synchronize_checkpoint_boundary", false},
        {"profile", false},
        {"cpu_checkpointing", false}});
  only(keys, "checkpoint.",
       {{"load_universal", false}, {"use_node_local_storage", false}, {"writer", Json()}});
  no_effect(keys, "checkpoint.", {"tag_validation", "checkpoint_serialization", "parallel_write"});
  only(keys, "tensorboard.", {{"output_path", ""}, {"job_name", "DeepSpeedJobName"}});
  only(keys, "csv_monitor.", {{"output_path", ""}, {"job_name", "DeepSpeedJobName"}});
  section(keys, "wandb", {"group", "team", "project"});
  section(keys, "comet",
          {"samples_log_interval", "project", "workspace", "api_key", "experiment_name", "experiment_key",
           "online", "mode"});
  only(keys, "comms_logger.", {{"verbose", false}, {"debug", false}});
  section(keys, "flops_profiler",
          {"recompute_fwd_factor", "profile_step", "module_depth", "top_modules", "detailed", "output_file"});
  section(keys, "nebula",
          {"nebula_load_path", "enable_nebula_load", "persistent_storage_path", "persistent_time_interval",
           "num_of_version_in_retention"});
  section(keys, "hybrid_engine",
          {"max_out_tokens", "inference_tp_size", "release_inference_cache", "pin_parameters",
           "tp_gather_partition_size", "enable_cuda_graph"});
  section(keys, "progressive_layer_drop", {"theta", "gamma"});
  for (const char* name :
       {"elasticity", "expert_parallel", "curriculum_learning", "data_efficiency", "autotuning"}) {
    section(keys, name);
  }
  for (const char* name :
       {"pipeline", "compile", "tensor_parallel", "sparse_attention", "compression_training",
        "weight_quantization", "quantize_training", "datastates_ckpt", "data_parallel_size"}) {
    only(keys, "", {{name, Json()}});
  }
}

bool equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  return a.dump() == b.dump();
}

void check_section(const ForeignKey& key, const Json& given) {
  if (!given.is_object())
    raise(DS_ERROR_CONFIG, "{}: expected a section, got {}", KeyName(key.path), given.dump());
  std::vector<std::string> known;
  for (const std::string& name : key.inside) known.push_back(key.path + "." + name);
  for (const auto& [name, value] : given.object()) {
    const std::string path = key.path + "." + name;
    if (name == "enabled") {
      const bool off = value.is_null() || equal(value, false) || equal(value, "auto");
      if (!off) raise(DS_ERROR_CONFIG, "{}: {} is unsupported by this version", KeyName(path), value.dump());
      continue;
    }
    bool found = known.empty();
    for (const std::string& one : known) found = found || one == path;
    if (!found) {
      const std::string near = nearest_path(path, known);
      raise(DS_ERROR_CONFIG, "{}: unknown key{}", KeyName(path),
            near.empty() ? "" : "; did you mean " + near + "?");
    }
  }
}

}  // namespace

const std::vector<ForeignKey>& foreign_keys() {
  static const std::vector<ForeignKey> keys = [] {
    std::vector<ForeignKey> all;
    top_level(all);
    precision(all);
    zero(all);
    other_sections(all);
    return all;
  }();
  return keys;
}

void check_foreign(const ForeignKey& key, const Json& given) {
  switch (key.rule) {
    case Rule::no_effect:
      return;
    case Rule::section:
      return check_section(key, given);
    case Rule::only:
      break;
  }
  if (equal(given, key.neutral)) return;
  if (key.neutral.is_null())
    raise(DS_ERROR_CONFIG, "{}: unsupported by this version; leave it out", KeyName(key.path));
  raise(DS_ERROR_CONFIG, "{}: {} is unsupported by this version; supported: {}", KeyName(key.path),
        given.dump(), key.neutral.dump());
}

}  // namespace ds
