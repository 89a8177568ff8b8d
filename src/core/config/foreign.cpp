// The keys of DeepSpeed that no field of Config represents, one row each.
//
// A key that chooses how DeepSpeed works and does not change results has no effect (no_effect). If
// DeepSpeed's class refuses values of other kinds, so does the row (switches, integers, reals,
// lists, choices). A key that requests what libds lacks is accepted only with its neutral value
// (only), and a section only while it is off (section). A row that refuses a feature contains the
// reason and often what to do in libds instead. docs/reference/deepspeed_compat.md gives the reason
// for each row; tests/core/config/ds_configs_test.cpp checks the rows against real files.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/contains.h"
#include "core/base/json.h"
#include "core/config/key.h"
#include "core/config/nearest_path.h"
#include "core/config/refuse.h"
#include "core/config/schema.h"

namespace ds {
namespace {

using Rule = ForeignKey::Rule;

struct Only {
  const char* name;
  Json neutral;
  const char* reason;
};

// Reads a value as pydantic reads a number: a number in quotes is that number, and a boolean is 0
// or 1. Other values are returned unchanged. Keys that libds acts on are read without this
// function, because there such a value is more likely a mistake.
Json plain_number(const Json& given) {
  if (given.is_bool()) return given.boolean() ? 1 : 0;
  if (!given.is_string()) return given;
  const std::string& text = given.string();
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? Json(number) : given;
}

// Splits a text at its blanks.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(words.back().size() + 1, text.size()));
  }
  return words;
}

// The rows of the table under construction, with a method for each rule. A list of names is passed
// as one text, with blanks between the names.
class Rows {
 public:
  void no_effect(const std::string& prefix, std::string_view names) {
    for (const std::string& name : words_of(names))
      rows.push_back({prefix + name, Rule::no_effect, {}, {}, ""});
  }
  // The next five methods also append keys without effect, but check the kind of their values.
  void switches(const std::string& prefix, std::string_view names) {
    of_kind<bool>(prefix, names, {});
  }
  void integers(const std::string& prefix, std::string_view names, const Limits& limits = {}) {
    of_kind<int64_t>(prefix, names, limits, plain_number);
  }
  void reals(const std::string& prefix, std::string_view names, const Limits& limits) {
    of_kind<double>(prefix, names, limits, plain_number);
  }
  void lists(const std::string& prefix, std::string_view names) {
    of_kind<std::vector<std::string>>(prefix, names, {});
  }
  void choices(const std::string& prefix, std::string_view names, const KeyWords& choices) {
    checked(prefix, names,
            [=](const std::string& path, const Json& given) { choose(path, given, choices); });
  }
  void only(const std::string& prefix, std::vector<Only> names) {
    for (Only& one : names)
      rows.push_back({prefix + one.name, Rule::only, std::move(one.neutral), {}, one.reason});
  }
  void section(std::string name, std::string_view inside, std::string reason) {
    rows.push_back({std::move(name), Rule::section, {}, words_of(inside), std::move(reason)});
  }
  // Appends a key that may be given only as null, as false or as a section whose "enabled" is
  // false.
  void absent(std::string name, std::string reason) {
    rows.push_back({std::move(name), Rule::only, {}, {}, std::move(reason)});
  }
  void warned(std::string name, std::string_view inside, std::string reason) {
    rows.push_back(
        {std::move(name), Rule::warned_section, {}, words_of(inside), std::move(reason)});
  }

  std::vector<ForeignKey> rows;

 private:
  using Check = std::function<void(const std::string& path, const Json& given)>;
  void checked(const std::string& prefix, std::string_view names, const Check& check) {
    for (const std::string& name : words_of(names))
      rows.push_back({prefix + name, Rule::no_effect, {}, {}, "", check});
  }
  template <typename Value>
  void of_kind(const std::string& prefix, std::string_view names, const Limits& limits,
               Json (*plain)(const Json& given) = nullptr) {
    checked(prefix, names, [=](const std::string& path, const Json& given) {
      read_value<Value>(path, plain ? plain(given) : given, limits);
    });
  }
};

constexpr const char* kOneOrder = "libds runs one order of tensors, data before experts";

void top_level(Rows& keys) {
  keys.no_effect("",
                 "dump_state memory_breakdown disable_allgather allgather_size "
                 "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer log_level "
                 "vocabulary_size dataloader_drop_last graph_harvesting prescale_gradients "
                 "gradient_predivide_factor disable_python_gc");
  keys.choices("", "seq_parallel_communication_data_type", {"fp32", "fp16", "bf16"});
  keys.switches("timers.throughput.", "enabled synchronized");
  keys.only("", {{"managed_gradient_accumulation", true,
                  "a host that sets the boundaries itself calls ds_backward and ds_step "
                  "(docs/guides/delegate.md)"},
                 {"gradient_allreduce_op", "mean",
                  "gradients are means over ranks; a sum is the mean times the number of ranks, "
                  "which plain SGD takes as a multiple of optimizer.params.lr, and which "
                  "gradient_clipping and Adam undo"},
                 {"use_data_before_expert_parallelism", false, kOneOrder},
                 {"sequence_parallel_size", 1, "libds has no sequence parallelism yet"},
                 {"durable", 0, "a libds key without a meaning yet"},
                 {"deepspeed_compat", false, "a libds key without a meaning yet"}});
  keys.only("data_types.",
            {{"keep_in_fp32_modules", Json(), "parameters have one type, beside f32 masters"},
             {"buffer_dtype", Json(), "buffers have the type of the model"}});
  keys.no_effect("optimizer.", "legacy_fusion");
  keys.no_effect("optimizer.params.",
                 "torch_adam foreach fused differentiable capturable cuda_aware comm_backend_name "
                 "set_grad_none");
  keys.only("optimizer.params.",
            {{"amsgrad", false, "no optimizer here keeps the largest second moment"},
             {"per_head_muon", false, "Muon's matrices are whole parameters here"}});
  keys.only("scheduler.params.",
            {{"last_batch_iteration", -1, "a resumed run has its position from the checkpoint"}});
}

void precision(Rows& keys) {
  keys.only("fp16.", {{"fp16_master_weights_and_grads", false, "master weights are f32"}});
  // DeepSpeed sends gradients of these modules in the lower type. Here they are sent in f32, the
  // type of their sums.
  keys.no_effect("torch_autocast.", "lower_precision_safe_modules");
  keys.section("amp", "", "libds does not include apex; use fp16.enabled or bf16.enabled");
  // A gradient is always added to its sum as soon as its bucket is complete.
  keys.switches("bf16.", "immediate_grad_update");
}

void zero(Rows& keys) {
  const std::string zero = "zero_optimization.";
  keys.switches(zero,
                "contiguous_gradients reduce_scatter use_multi_rank_bucket_allreduce "
                "allgather_partitions elastic_checkpoint round_robin_gradients "
                "memory_efficient_linear override_module_apply log_trace_cache_warnings "
                "save_muon_momentum_buffer_in_memory "
                "cpu_offload_use_pin_memory stage3_gather_16bit_weights_on_model_save "
                "gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save "
                "stage3_use_all_reduce_for_fetch_params use_all_reduce_for_fetch_params "
                "stage3_allgather_sequential allgather_sequential parameter_alignment "
                "pipeline_loading_checkpoint");
  keys.integers(zero, "allgather_bucket_size", not_negative);
  keys.integers(zero, "stage3_module_granularity_threshold module_granularity_threshold");
  keys.lists(zero + "leaf_module.", "classes names name_suffixes");
  keys.only(
      zero,
      {{"load_from_fp32_weights", true, "masters are restored from the checkpoint's masters"},
       {"ignore_unused_parameters", true, "the gradient of a parameter that nothing reads is zero"},
       {"compute_grad_norm", true, "the norm is a result of every step"},
       {"zero_quantized_nontrainable_weights", false,
        "zero_quantized_weights covers parameters that are frozen, too"},
       {"legacy_stage1", false, "DeepSpeed refuses it, too"},
       {"zenflow", Json(), "libds has no ZenFlow; offload_optimizer keeps the exact update"}});
  keys.switches(zero + "offload_optimizer.", "pin_memory pipeline_read pipeline_write fast_init");
  keys.reals(zero + "offload_optimizer.", "cpuadam_cores_perc", {.low = 0, .high = 1});
  keys.only(zero + "offload_optimizer.",
            {{"ratio", 1.0, "all sub-groups are updated on the tier that holds them"},
             {"super_offload", false,
              "libds has no speculative update; offload_optimizer.device is exact"}});
  keys.switches(zero + "offload_param.", "pin_memory");
  keys.integers(zero + "offload_param.", "buffer_count buffer_size max_in_cpu", not_negative);
}

// Appends the keys of torch.compile and DeepCompile. Most have no effect, since libds compiles
// every step anyway. Options that recompute or offload are refused, since libds has its own keys
// for these.
void compile(Rows& keys) {
  // DeepSpeed passes these keys on to torch.compile.
  keys.no_effect("compile.", "enabled backend disable kwargs mode dynamic fullgraph");
  keys.switches(
      "compile.",
      "deepcompile offload_activation_pin_memory double_buffer symmetric_memory debug_log "
      "sync_before_reduce sync_after_reduce sync_before_allgather sync_after_allgather "
      "keep_int_input_tensors keep_all_input_tensors autoep_non_moe");
  keys.integers("compile.", "free_activation_threshold");
  keys.only("compile.",
            {{"free_activation", false, "use recompute"},
             {"offload_activation", false, "libds offloads no activations; use recompute"},
             {"offload_opt_states", false, "use zero_optimization.offload_optimizer.device"},
             {"offload_parameters", false, "use zero_optimization.offload_param.device"},
             {"passes", Json(), "the passes of libds are fixed (docs/concepts/design.md)"}});
}

void other_sections(Rows& keys) {
  keys.no_effect("aio.", "intra_op_parallelism thread_count single_submit overlap_events use_gds");
  // These keys control how DeepSpeed's checkpoint() partitions and stores the activations that it
  // keeps. The model decides whether to call checkpoint().
  keys.no_effect("activation_checkpointing.",
                 "partition_activations contiguous_memory_optimization number_checkpoints "
                 "synchronize_checkpoint_boundary profile");
  // On "cpu" activations are in host memory already; check_activations refuses true on other
  // devices.
  keys.switches("activation_checkpointing.", "cpu_checkpointing");
  keys.only(
      "checkpoint.",
      {{"load_universal", false, "`libds convert` reads universal checkpoints"},
       {"use_node_local_storage", false, "the folder of checkpoints is one that all ranks see"}});
  keys.choices("checkpoint.", "tag_validation", {"Ignore", "Warn", "Fail"});
  keys.no_effect("checkpoint.", "checkpoint_serialization");
  keys.no_effect("checkpoint.parallel_write.", "pipeline_stage");
  keys.no_effect(
      "checkpoint.writer.",
      "type io_buffer_size io_buffer_double show_statistics data_parallel io_multiplier");
  const std::string from_python =
      "the Python package sends it: libds.train, or libds.Monitors beside an engine";
  keys.section("wandb", "group team project", from_python);
  keys.section("comet",
               "samples_log_interval project workspace api_key experiment_name experiment_key "
               "online mode",
               from_python);
  keys.only("comms_logger.", {{"verbose", false, "the flight recorder has the last collectives"}});
  keys.switches("comms_logger.", "debug");
  keys.section("nebula",
               "nebula_load_path enable_nebula_load persistent_storage_path "
               "persistent_time_interval num_of_version_in_retention",
               "a service of Azure; use run.save_every and run.keep");
  keys.section("hybrid_engine",
               "max_out_tokens inference_tp_size release_inference_cache pin_parameters "
               "tp_gather_partition_size enable_cuda_graph",
               "ds_infer and ds_text_generate run on the weights that are trained");
  keys.section("progressive_layer_drop", "theta gamma",
               "DeepSpeed hands theta to the model, whose code says what it does; use layerdrop of "
               "the model");
  keys.section("elasticity",
               "max_train_batch_size micro_batch_sizes min_gpus max_gpus num_gpus_per_node "
               "model_parallel_size min_time prefer_larger_batch ignore_non_elastic_batch_info "
               "version",
               "give the batch sizes; a checkpoint resumes on any number of ranks");
  keys.section("eigenvalue",
               "verbose max_iter tol stability gas_boundary_resolution layer_name layer_num "
               "model_name",
               "part of MoQ, which libds lacks");
  keys.warned("autotuning",
              "fast results_dir exps_dir overwrite start_profile_step end_profile_step metric "
              "metric_path tuner_type tuner_early_stopping tuner_num_trials arg_mappings "
              "model_info model_info_path mp_size max_train_batch_size min_train_batch_size "
              "max_train_micro_batch_size_per_gpu min_train_micro_batch_size_per_gpu "
              "num_tuning_micro_batch_sizes",
              "libds tunes nothing unasked; `libds plan` and `libds profile` show what to change");
  keys.absent("sparse_attention", "libds has no block-sparse attention");
  keys.absent("quantize_training", "libds has no quantization-aware training (MoQ)");
  keys.absent("weight_quantization", "libds has no quantized inference yet");
  keys.absent("datastates_ckpt", "libds has one checkpoint writer");
  keys.absent("data_parallel_size", "it is the number of ranks");
}

// Appends the keys of an adapter_config.json of PEFT that libds does not act on. They may stand
// there with the values that PEFT writes by default.
void adapters(Rows& keys) {
  keys.no_effect(
      "adapter.",
      "task_type base_model_name_or_path revision inference_mode peft_version auto_mapping "
      "fan_in_fan_out megatron_core qalora_group_size runtime_config");
  const char* other = "libds has LoRA and DoRA only";
  std::vector<Only> rows;
  for (const char* name : {"use_qalora", "lora_bias", "ensure_weight_tying"})
    rows.push_back({name, false, other});
  for (const char* name :
       {"megatron_config", "trainable_token_indices", "eva_config", "corda_config",
        "lora_ga_config", "velora_config", "alora_invocation_tokens", "monteclora_config",
        "layer_replication", "use_bdlora", "arrow_config", "kasa_config"})
    rows.push_back({name, Json(), other});
  rows.push_back({"loftq_config", Json(Json::Object()), other});
  rows.push_back({"target_parameters", Json(Json::Array()), other});
  keys.only("adapter.", std::move(rows));
}

// Appends sections whose parts are switched on and off separately.
void nested_sections(Rows& keys) {
  keys.rows.push_back({"compression_training", Rule::nested, {}, {}, "libds compresses no models"});
  keys.rows.push_back({"data_efficiency.data_routing",
                       Rule::nested,
                       {},
                       words_of("random_ltd"),
                       "libds has no random layerwise token dropping"});
  keys.rows.push_back(
      {"data_efficiency.data_sampling.curriculum_learning",
       Rule::nested,
       {},
       words_of("data_cluster_path curriculum_metrics"),
       "libds draws no samples by metric files; use curriculum_learning at the top level"});
  keys.no_effect("data_efficiency.data_sampling.", "num_epochs num_workers pin_memory");
  // libds measures the run's own documents instead of reading their lengths from files.
  keys.no_effect("data_efficiency.data_sampling.dynamic_batching.", "metrics_path verbose");
}

// Appends the sections of parallelisms that libds lacks. A section of Rule::degree may be given
// with a degree of 1, which changes nothing.
void parallelisms(Rows& keys) {
  keys.section("expert_parallel",
               "autoep_size expert_tensor_parallel_size validate_folding_routing async_split_plan "
               "preset_model moe_layer_pattern expert_pattern router_pattern use_grouped_mm "
               "disable_triton_grouped_mm route_norm route_scale score_apply combine_impl "
               "row_weighting_impl gate_up_impl comm_backend comm_num_sm comm_qp_margin "
               "comm_max_tokens_per_rank num_expert_groups num_limited_groups score_func top_k "
               "load_balance_coeff routed_scaling_factor expert_w1 expert_w2 expert_w3 "
               "num_experts_attr top_k_attr has_shared_experts shared_experts_pattern "
               "shared_experts_gate_pattern expert_activation",
               "libds has no expert parallelism yet");
  keys.rows.push_back(
      {"tensor_parallel",
       Rule::degree,
       {},
       words_of("autotp_size tp_size tp tp.tp_size tp.tp_grain_size tp.mpu tp.tp_group "
                "tensor_parallel tensor_parallel.tp_size tensor_parallel.tp_grain_size "
                "tensor_parallel.mpu tensor_parallel.tp_group dtype tp_overlap_comm tp_grain_size "
                "injection_policy_tuple partition_config preset_model keep_module_on_host "
                "kernel_inject replace_with_kernel_inject vocab_parallel_lm_head "
                "vocab_parallel_ce_backend"),
       "libds has no tensor parallelism yet"});
  keys.rows.push_back(
      {"pipeline",
       Rule::degree,
       {},
       words_of("stages partition seed_layers activation_checkpoint_interval pipe_partitioned "
                "grad_partitioned use_reentrant"),
       "libds has no pipeline parallelism yet"});
}

// Returns whether the given value `a` means the same as `b`. Booleans are compared in all accepted
// forms, numbers by value, and texts without regard to case.
bool equal(const Json& a, const Json& b) {
  if (b.is_bool()) return truth_of(a) == b.boolean();
  if (a.is_number() && b.is_number()) return a.number() == b.number();
  if (a.is_string() && b.is_string()) return ascii_lower(a.string()) == ascii_lower(b.string());
  return a.dump() == b.dump();
}

bool switched_on(const std::string& path, const Json& value) {
  return !value.is_null() && truth_at(path, value) != false && !equal(value, "auto");
}

[[noreturn]] void refuse_foreign(const std::string& path, const std::string& value,
                                 const ForeignKey& key) {
  refuse(path, "{}unsupported by this version; {}", value.empty() ? "" : value + " is ",
         key.reason);
}

// Refuses unknown members of a section. A member that has known members is also a section.
void check_members(const std::vector<std::string>& known, const std::string& section,
                   const Json& given) {
  if (!given.is_object()) refuse(section, "expected a section, got {}", given.dump());
  for (const auto& [name, value] : given.object()) {
    const std::string path = section + "." + name;
    const auto inside = [&](const std::string& one) { return one.starts_with(path + "."); };
    if (std::ranges::any_of(known, inside)) {
      check_members(known, path, value);
      continue;
    }
    if (name == "enabled" || known.empty() || contains(known, path)) continue;
    const std::string near = nearest_path(path, known);
    refuse(path, "unknown key{}", near.empty() ? "" : "; did you mean " + near + "?");
  }
}

void check_inside(const ForeignKey& key, const Json& given) {
  std::vector<std::string> known;
  for (const std::string& name : key.inside) known.push_back(key.path + "." + name);
  check_members(known, key.path, given);
}

// Refuses a part whose `enabled` is on, unless the `enabled` of an enclosing section is off. The
// `enabled` of a section that only contains parts switches nothing on by itself.
void check_nested(const ForeignKey& key, const std::string& path, const Json& given) {
  const Json* enabled = given.find("enabled");
  if (enabled && !switched_on(path + ".enabled", *enabled)) return;
  const bool holds_parts = path == "compression_training" || path == "data_efficiency.data_routing";
  if (enabled && !holds_parts) refuse_foreign(path + ".enabled", enabled->dump(), key);
  for (const auto& [name, value] : given.object()) {
    if (value.is_object()) check_nested(key, path + "." + name, value);
  }
}

void check_degree(const ForeignKey& key, const std::string& path, const Json& given) {
  for (const auto& [name, value] : given.object()) {
    const std::string at = path + "." + name;
    const bool degree = name == "autotp_size" || name == "tp_size" || name == "stages";
    const Json number = plain_number(value);
    if (degree && number.is_number() && number.number() > 1) refuse_foreign(at, value.dump(), key);
    if (value.is_object()) check_degree(key, at, value);
  }
}

}  // namespace

const std::vector<ForeignKey>& foreign_keys() {
  static const auto& keys = *new auto([] {
    Rows all;
    top_level(all);
    precision(all);
    zero(all);
    compile(all);
    other_sections(all);
    adapters(all);
    nested_sections(all);
    parallelisms(all);
    return std::move(all.rows);
  }());
  return keys;
}

ForeignEffect check_foreign(const ForeignKey& key, const Json& given) {
  switch (key.rule) {
    case Rule::no_effect:
      if (key.check) key.check(key.path, given);
      return ForeignEffect::none;
    case Rule::section:
    case Rule::warned_section: {
      check_inside(key, given);
      const Json* enabled = given.find("enabled");
      if (!enabled || !switched_on(key.path + ".enabled", *enabled)) return ForeignEffect::off;
      if (key.rule == Rule::warned_section) return ForeignEffect::warning;
      refuse_foreign(key.path + ".enabled", enabled->dump(), key);
    }
    case Rule::nested:
      check_inside(key, given);
      check_nested(key, key.path, given);
      return ForeignEffect::off;
    case Rule::degree:
      check_inside(key, given);
      check_degree(key, key.path, given);
      return ForeignEffect::none;
    case Rule::only:
      break;
  }
  // The remaining rule is Rule::only. A key without a neutral value may be given if it is switched
  // off, by false or by an "enabled" that is false.
  const bool asks_nothing = key.neutral.is_bool()
                                ? truth_at(key.path, given) == key.neutral.boolean()
                                : equal(given, key.neutral);
  if (asks_nothing) return ForeignEffect::off;
  const Json* enabled = given.is_object() ? given.find("enabled") : nullptr;
  if (key.neutral.is_null() && (equal(given, false) || (enabled && equal(*enabled, false))))
    return ForeignEffect::off;
  if (key.neutral.is_null()) refuse_foreign(key.path, "", key);
  refuse(key.path, "{} is unsupported by this version; supported: {}; {}", given.dump(),
         key.neutral.dump(), key.reason);
}

}  // namespace ds
