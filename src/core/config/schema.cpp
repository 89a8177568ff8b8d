#include "core/config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/ascii.h"
#include "core/base/collective_names.h"
#include "core/base/device_name.h"
#include "core/base/error.h"
#include "core/config/curriculum.h"
#include "core/config/data_efficiency.h"
#include "core/config/key_kinds.h"
#include "core/config/optimizer_keys.h"
#include "core/config/schedule_keys.h"

namespace ds {
namespace {

void batch_keys(std::vector<Key>& keys) {
  keys.push_back(key(
      "train_batch_size", [](auto& c) -> auto& { return c.train_batch; }, most));
  keys.push_back(key(
      "train_micro_batch_size_per_gpu", [](auto& c) -> auto& { return c.micro_batch; }, most));
  keys.push_back(key(
      "gradient_accumulation_steps", [](auto& c) -> auto& { return c.accumulation; },
      Limits{.high = kMostAccumulation}));
}

// The names of make_device(): those that are always there, and those of a plugin, which an engine
// looks for.
Key device_key() {
  auto set = [](Config& c, const Json& given) {
    std::string name;
    read_value("device", given, {}, name);
    if (names_cuda(name)) {
      c.device = name;
      return;
    }
    std::vector<std::string> supported(std::begin(kDevices), std::end(kDevices));
    supported.push_back(std::string(kOwnCuda));
    supported.push_back("cuda:N");
    c.device = choose("device", given, supported, {});
    if (c.device == supported.back()) {
      raise(DS_ERROR_CONFIG, "{}: \"{}\" must have the number of a device, as in \"cuda:0\"",
            KeyName("device"), name);
    }
  };
  return {"device", "", set, [](const Config& c) { return Json(c.device); }};
}

// DeepSpeed's files have Infinity, as Python writes it, or more steps than a run has, for never.
Key steps_per_print_key() {
  auto set = [](Config& c, const Json& given) {
    const bool never = given.is_infinity() ? !given.is_negative_infinity()
                                           : given.is_number() && given.number() > kMost;
    if (never) {
      c.steps_per_print = kNeverPrint;
    } else {
      read_value("steps_per_print", given, positive, c.steps_per_print);
    }
  };
  auto get = [](const Config& c) {
    return c.steps_per_print == kNeverPrint ? Json::infinity() : Json(c.steps_per_print);
  };
  return {"steps_per_print", "", set, get};
}

// DeepSpeed's words for floating types, and torch's with or without "torch.".
DType precision_word(const std::string& path, const Json& given,
                     const std::vector<std::string>& supported) {
  std::string word;
  read_value(path, given, {}, word);
  std::string name = ascii_lower(word);
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (std::find(supported.begin(), supported.end(), name) == supported.end())
    raise(DS_ERROR_CONFIG, "{}: \"{}\" is unknown; supported: {}", KeyName(path), word,
          fmt::join(supported, ", "));
  if (name == "fp16" || name == "float16" || name == "half") return DS_DTYPE_F16;
  return name == "bf16" || name == "bfloat16" ? DS_DTYPE_BF16 : DS_DTYPE_F32;
}

// bf16.enabled or fp16.enabled.
Key enabled_key(const std::string& path, DType dtype) {
  auto set = [=](Config& c, const Json& given) {
    bool on = false;
    read_value(path, given, {}, on);
    if (!on) return;
    if (c.compute != DS_DTYPE_F32)
      raise(DS_ERROR_CONFIG, "{}: true excludes bf16.enabled: true; enable one of them",
            KeyName(path));
    c.compute = dtype;
  };
  return {path, "", set, [=](const Config& c) { return Json(c.compute == dtype); }};
}

// A static scale must stay finite as an f32, and so must the first dynamic one.
constexpr Limits scale_limits{.low = 0, .high = 1e38}, power_limits{.low = 0, .high = 126};

// DeepSpeed's word; null for none.
Json word_of(DType dtype) {
  switch (dtype) {
    case DS_DTYPE_NONE:
      return Json();
    case DS_DTYPE_F32:
      return Json("fp32");
    case DS_DTYPE_F16:
      return Json("fp16");
    default:
      return Json("bf16");
  }
}

const std::vector<std::string>& type_words() {
  static const auto& words = *new std::vector<std::string>{
      "fp32", "fp16", "bf16", "float32", "float16", "bfloat16", "float", "half"};
  return words;
}

Key gradient_type_key(const std::string& path, DType Config::*type,
                      std::vector<std::string> words) {
  return {path, "",
          [=](Config& c, const Json& given) {
            if (!given.is_null()) c.*type = precision_word(path, given, words);
          },
          [type](const Config& c) { return word_of(c.*type); }};
}

// As in DeepSpeed it chooses nothing: it must agree with bf16.enabled and fp16.enabled, which are
// set before.
Key param_type_key(const std::string& path) {
  auto set = [=](Config& c, const Json& given) {
    if (precision_word(path, given, type_words()) == c.compute) return;
    raise(DS_ERROR_CONFIG,
          "{}: \"{}\" differs from \"{}\", the type that bf16.enabled and fp16.enabled choose",
          KeyName(path), given.string(), word_of(c.compute).string());
  };
  return {path, "", set, [](const Config& c) { return word_of(c.compute); }};
}

void precision_keys(std::vector<Key>& keys) {
  keys.push_back(enabled_key("bf16.enabled", DS_DTYPE_BF16));
  keys.push_back(
      key("bf16.check_grad_overflow", [](auto& c) -> auto& { return c.check_grad_overflow; }));
  keys.push_back(enabled_key("fp16.enabled", DS_DTYPE_F16));
  keys.push_back(key("fp16.auto_cast", [](auto& c) -> auto& { return c.auto_cast; }));
  keys.push_back(key(
      "fp16.loss_scale", [](auto& c) -> auto& { return c.loss_scale.loss_scale; }, scale_limits));
  keys.push_back(key(
      "fp16.initial_scale_power", [](auto& c) -> auto& { return c.loss_scale.initial_scale_power; },
      power_limits));
  keys.push_back(key(
      "fp16.loss_scale_window", [](auto& c) -> auto& { return c.loss_scale.window; }, count));
  keys.push_back(key(
      "fp16.hysteresis", [](auto& c) -> auto& { return c.loss_scale.hysteresis; }, count));
  keys.push_back(key("fp16.consecutive_hysteresis",
                     [](auto& c) -> auto& { return c.loss_scale.consecutive_hysteresis; }));
  keys.push_back(key(
      "fp16.min_loss_scale", [](auto& c) -> auto& { return c.loss_scale.min_loss_scale; },
      scale_limits));
  keys.push_back(gradient_type_key("communication_data_type", &Config::communication,
                                   {"fp32", "fp16", "bf16"}));
  keys.push_back(
      gradient_type_key("data_types.grad_accum_dtype", &Config::grad_accum, type_words()));
  keys.push_back(param_type_key("data_types.param_dtype"));
  keys.push_back(
      key("torch_autocast.enabled", [](auto& c) -> auto& { return c.autocast.enabled; }));
  const std::string autocast = "torch_autocast.dtype";
  keys.push_back({autocast, "",
                  [=](Config& c, const Json& given) {
                    DType dtype = precision_word(autocast, given,
                                                 {"bfloat16", "bf16", "float16", "half", "fp16"});
                    c.autocast.dtype = dtype == DS_DTYPE_F16 ? "f16" : "bf16";
                  },
                  [](const Config& c) {
                    return Json(c.autocast.dtype == "f16" ? "torch.float16" : "torch.bfloat16");
                  }});
}

// A name of a folder, or of one below another, that leads nowhere else.
void require_inside(const std::string& path, const std::string& name) {
  std::string_view rest = name;
  bool inside = !name.starts_with("/") && name.find('\0') == name.npos;
  while (inside && !rest.empty()) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    inside = rest.substr(0, slash) != "..";
    rest.remove_prefix(std::min(slash + 1, rest.size()));
  }
  if (inside) return;
  raise(DS_ERROR_CONFIG,
        "{}: must name a folder below output_path, without \"..\" and not absolute, got {}",
        KeyName(path), Json(name).dump());
}

void monitor_keys(std::vector<Key>& keys, const std::string& section,
                  MonitorConfig Config::*monitor) {
  keys.push_back(
      key(section + ".enabled", [monitor](auto& c) -> auto& { return (c.*monitor).enabled; }));
  keys.push_back(key(section + ".output_path",
                     [monitor](auto& c) -> auto& { return (c.*monitor).output_path; }));
  Key job =
      key(section + ".job_name", [monitor](auto& c) -> auto& { return (c.*monitor).job_name; });
  job.set = [set = job.set, path = job.path, monitor](Config& c, const Json& given) {
    set(c, given);
    require_inside(path, (c.*monitor).job_name);
  };
  keys.push_back(std::move(job));
}

void flops_profiler_keys(std::vector<Key>& keys) {
  const std::string section = "flops_profiler.";
  keys.push_back(
      key(section + "enabled", [](auto& c) -> auto& { return c.flops_profiler.enabled; }));
  auto add = [&](const std::string& name, auto field, Limits limits) {
    Key one = key(section + name, field, limits);
    one.get = [get = one.get](const Config& c) {
      return c.flops_profiler.enabled ? get(c) : Json();
    };
    keys.push_back(std::move(one));
  };
  add(
      "profile_step", [](auto& c) -> auto& { return c.flops_profiler.profile_step; }, positive);
  add(
      "module_depth", [](auto& c) -> auto& { return c.flops_profiler.module_depth; },
      Limits{.low = -1, .high = kMost});
  add(
      "top_modules", [](auto& c) -> auto& { return c.flops_profiler.top_modules; }, positive);
  add("detailed", [](auto& c) -> auto& { return c.flops_profiler.detailed; }, {});
  add("output_file", [](auto& c) -> auto& { return c.flops_profiler.output_file; }, {});
  add(
      "recompute_fwd_factor",
      [](auto& c) -> auto& { return c.flops_profiler.recompute_fwd_factor; },
      Limits{.low = 0, .high = 100});
}

void general_keys(std::vector<Key>& keys) {
  keys.push_back(key(
      "gradient_clipping", [](auto& c) -> auto& { return c.gradient_clipping; }, not_negative));
  keys.push_back(steps_per_print_key());
  monitor_keys(keys, "tensorboard", &Config::tensorboard);
  monitor_keys(keys, "csv_monitor", &Config::csv_monitor);
  monitor_keys(keys, "jsonl_monitor", &Config::jsonl_monitor);
  keys.push_back(
      key("comms_logger.enabled", [](auto& c) -> auto& { return c.comms_logger.enabled; }));
  keys.push_back(key("comms_logger.prof_all", [](auto& c) -> auto& { return c.comms_logger.all; }));
  Key logged =
      key("comms_logger.prof_ops", [](auto& c) -> auto& { return c.comms_logger.operations; });
  logged.set = [set = logged.set](Config& c, const Json& given) {
    set(c, given);
    logged_operations(c.comms_logger.operations);  // refuses unknown names
  };
  keys.push_back(std::move(logged));
  keys.push_back(
      key("wall_clock_breakdown", [](auto& c) -> auto& { return c.wall_clock_breakdown; }));
  flops_profiler_keys(keys);
  keys.push_back(key(
      "comm_timeout_ms", [](auto& c) -> auto& { return c.comm_timeout_ms; }, positive));
  keys.push_back(key("communicator", [](auto& c) -> auto& { return c.communicator; }));
  keys.push_back(device_key());
  keys.push_back(choice_key("reduction", [](auto& c) -> auto& { return c.reduction; },
                            {"micro", "boundary", "tree"}, {"vendor"}));
  keys.push_back(choice_key("loss_average", [](auto& c) -> auto& { return c.loss_average; },
                            {"micro_batch", "tokens"}));
  keys.push_back(choice_key("gradient_compression.type",
                            [](auto& c) -> auto& { return c.gradient_compression.type; },
                            {"none", "int8", "top_k"}));
  Key ratio = key(
      "gradient_compression.ratio", [](auto& c) -> auto& { return c.gradient_compression.ratio; },
      Limits{.low = 0, .high = 1});
  ratio.get = [get = ratio.get](const Config& c) {
    return c.gradient_compression.type == "top_k" ? get(c) : Json();
  };
  keys.push_back(std::move(ratio));
  keys.push_back(key("sparse_gradients", [](auto& c) -> auto& { return c.sparse_gradients; }));
  keys.push_back(key("tf32", [](auto& c) -> auto& { return c.tf32; }));
  keys.push_back(key("reproducible", [](auto& c) -> auto& { return c.reproducible; }));
  keys.push_back(key(
      "topology.nodes", [](auto& c) -> auto& { return c.nodes; }, count));
  keys.push_back(
      choice_key("topology.levels", [](auto& c) -> auto& { return c.levels; }, {"hosts", "auto"}));
  keys.push_back(key("frozen_parameters", [](auto& c) -> auto& { return c.frozen; }));
  Key apart = key("emulate_tiers", [](auto& c) -> auto& { return c.emulate_tiers; });
  apart.get = [](const Config& c) { return Json(c.separate_tiers()); };
  keys.push_back(std::move(apart));
  keys.push_back(choice_key("fused_head", [](auto& c) -> auto& { return c.fused_head; },
                            {"auto", "always", "never"}));
  keys.push_back(choice_key("recompute", [](auto& c) -> auto& { return c.recompute; },
                            {"none", "cheap", "layers"}));
  Key interval = key(
      "recompute_num_layers", [](auto& c) -> auto& { return c.recompute_num_layers; }, positive);
  interval.get = [get = interval.get](const Config& c) {
    return c.recompute == "layers" ? get(c) : Json();
  };
  keys.push_back(std::move(interval));
  keys.push_back(
      bytes_key("memory_budget.device", [](auto& c) -> auto& { return c.memory_budget.device; }));
  keys.push_back(
      bytes_key("memory_budget.host", [](auto& c) -> auto& { return c.memory_budget.host; }));
  keys.push_back(
      bytes_key("memory_budget.nvme", [](auto& c) -> auto& { return c.memory_budget.nvme; }));
}

// nvme_path belongs to both offload sections; libds has one scratch folder. A section that offloads
// elsewhere sets it only if the other section has none.
Key nvme_path_key(const std::string& section, Tier ZeroConfig::*tier, Tier ZeroConfig::*other) {
  const std::string path = "zero_optimization." + section + ".nvme_path";
  auto set = [path, tier, other](Config& c, const Json& given) {
    std::string folder;
    read_value(path, given, {}, folder);
    const bool first = c.zero.nvme_path.empty(), used = c.zero.*tier == Tier::nvme;
    if (!first && !used) return;
    if (!first && c.zero.*other == Tier::nvme && c.zero.nvme_path != folder) {
      raise(DS_ERROR_CONFIG,
            "{}: \"{}\" differs from \"{}\" of the other offload section; one folder is used",
            KeyName(path), folder, c.zero.nvme_path);
    }
    c.zero.nvme_path = folder;
  };
  auto get = [tier](const Config& c) {
    return c.zero.*tier == Tier::nvme ? Json(c.zero.nvme_path) : Json();
  };
  return {path, "", set, get};
}

// Either parameter turns error feedback on.
template <typename Field>
Key loco_key(const std::string& name, Field field, Limits limits) {
  Key one = key("zero_optimization.zeropp_loco_param." + name, field, limits);
  one.set = [set = one.set](Config& c, const Json& given) {
    set(c, given);
    c.zero.error_feedback = true;
  };
  one.get = [get = one.get](const Config& c) { return c.zero.error_feedback ? get(c) : Json(); };
  return one;
}

void quantization_keys(std::vector<Key>& keys) {
  const std::string zero = "zero_optimization.";
  keys.push_back(key(zero + "zero_quantized_weights",
                     [](auto& c) -> auto& { return c.zero.quantized_weights; }));
  keys.push_back(key(zero + "zero_quantized_gradients",
                     [](auto& c) -> auto& { return c.zero.quantized_gradients; }));
  Key bits = key(
      zero + "zero_quantized_gradients_bits", [](auto& c) -> auto& { return c.zero.gradient_bits; },
      Limits{.low = 4, .high = 8});
  bits.get = [get = bits.get](const Config& c) {
    return c.zero.quantized_gradients ? get(c) : Json();
  };
  keys.push_back(std::move(bits));
  keys.push_back(loco_key(
      "err_beta", [](auto& c) -> auto& { return c.zero.err_beta; }, decay));
  keys.push_back(loco_key(
      "reset_T", [](auto& c) -> auto& { return c.zero.err_reset; }, positive));
}

void zero_keys(std::vector<Key>& keys) {
  const std::string zero = "zero_optimization.";
  auto add = [&](std::string name, auto field, Limits limits, std::string other = "") {
    keys.push_back(key(zero + name, field, limits, std::move(other)));
  };
  add(
      "stage", [](auto& c) -> auto& { return c.zero.stage; }, Limits{.low = 0, .high = 3});
  add(
      "reduce_bucket_size", [](auto& c) -> auto& { return c.zero.reduce_bucket_size; },
      positive_elements);
  add(
      "stage3_prefetch_bucket_size", [](auto& c) -> auto& { return c.zero.prefetch_bucket_size; },
      elements, "prefetch_bucket_size");
  add(
      "stage3_max_live_parameters", [](auto& c) -> auto& { return c.zero.max_live_parameters; },
      elements, "max_live_parameters");
  add(
      "stage3_max_reuse_distance", [](auto& c) -> auto& { return c.zero.max_reuse_distance; },
      elements, "max_reuse_distance");
  add(
      "stage3_param_persistence_threshold",
      [](auto& c) -> auto& { return c.zero.param_persistence_threshold; }, elements,
      "param_persistence_threshold");
  add(
      "stage3_model_persistence_threshold",
      [](auto& c) -> auto& { return c.zero.model_persistence_threshold; }, Limits{.low = 0},
      "model_persistence_threshold");
  add(
      "sub_group_size", [](auto& c) -> auto& { return c.zero.sub_group_size; }, elements);
  add("overlap_comm", [](auto& c) -> auto& { return c.zero.overlap_comm; }, {});
  add("offload_optimizer.device", [](auto& c) -> auto& { return c.zero.optimizer_tier; }, {});
  keys.push_back(
      nvme_path_key("offload_optimizer", &ZeroConfig::optimizer_tier, &ZeroConfig::param_tier));
  add(
      "offload_optimizer.buffer_count", [](auto& c) -> auto& { return c.zero.buffer_count; },
      positive);
  add(
      "mics_shard_size", [](auto& c) -> auto& { return c.zero.mics_shard_size; },
      Limits{.low = -1, .high = kMost});
  add("mics_hierarchical_params_gather",
      [](auto& c) -> auto& { return c.zero.mics_hierarchical_gather; }, {});
  add(
      "zero_hpz_partition_size", [](auto& c) -> auto& { return c.zero.hpz_partition_size; }, count);
  add("offload_param.device", [](auto& c) -> auto& { return c.zero.param_tier; }, {});
  keys.push_back(
      nvme_path_key("offload_param", &ZeroConfig::param_tier, &ZeroConfig::optimizer_tier));
  quantization_keys(keys);
  keys.push_back(key(
      "aio.block_size", [](auto& c) -> auto& { return c.aio.block_size; },
      Limits{.low = 512, .high = 1 << 30}));
  keys.push_back(key(
      "aio.queue_depth", [](auto& c) -> auto& { return c.aio.queue_depth; },
      Limits{.low = 1, .high = 65536}));
}

// Keys of the built-in model and of a model folder; absent where the caller brings the graph.
void model_keys(std::vector<Key>& keys) {
  auto add = [&](const std::string& name, auto field, Limits limits) {
    Key one = key("model." + name, field, limits);
    one.get = [get = one.get](const Config& c) { return c.model.family.empty() ? Json() : get(c); };
    keys.push_back(std::move(one));
  };
  keys.push_back(
      choice_key("model.family", [](auto& c) -> auto& { return c.model.family; }, {"gpt"}));
  auto of_folder = [&](Key one) {
    one.get = [get = one.get](const Config& c) { return c.model.folder.empty() ? Json() : get(c); };
    keys.push_back(std::move(one));
  };
  of_folder(key("model.folder", [](auto& c) -> auto& { return c.model.folder; }));
  of_folder(choice_key("model.init", [](auto& c) -> auto& { return c.model.init; },
                       {"folder", "random"}));
  of_folder(key("model.mask", [](auto& c) -> auto& { return c.model.mask; }));
  Key documents = key("model.documents", [](auto& c) -> auto& { return c.model.documents; });
  documents.get = [get = documents.get](const Config& c) {
    return c.model.family.empty() && c.model.folder.empty() ? Json() : get(c);
  };
  keys.push_back(std::move(documents));
  add(
      "layers", [](auto& c) -> auto& { return c.model.layers; }, Limits{.low = 1, .high = 1000});
  add(
      "hidden", [](auto& c) -> auto& { return c.model.hidden; }, positive);
  add(
      "heads", [](auto& c) -> auto& { return c.model.heads; }, positive);
  add(
      "vocab", [](auto& c) -> auto& { return c.model.vocab; }, positive);
  add(
      "positions", [](auto& c) -> auto& { return c.model.positions; }, positive);
  add(
      "dropout", [](auto& c) -> auto& { return c.model.dropout; }, Limits{.low = 0, .high = 0.999});
  add(
      "layerdrop", [](auto& c) -> auto& { return c.model.layerdrop; },
      Limits{.low = 0, .high = 0.999});
}

// A key of masked language models, which only a folder can hold.
template <typename Field>
Key masking_key(std::string path, Field field, Limits limits) {
  Key out = key(std::move(path), field, limits);
  out.get = [field](const Config& config) {
    const auto value = field(config);
    return config.model.folder.empty() || value < 0 ? Json() : write_value(value);
  };
  return out;
}

void masking_keys(std::vector<Key>& keys) {
  constexpr Limits share{.low = 0, .high = 1};
  keys.push_back(masking_key(
      "data.mlm_probability", [](auto& c) -> auto& { return c.data.mlm_probability; }, share));
  keys.push_back(masking_key(
      "data.mask_replace_prob", [](auto& c) -> auto& { return c.data.mask_replace_prob; }, share));
  keys.push_back(masking_key(
      "data.random_replace_prob", [](auto& c) -> auto& { return c.data.random_replace_prob; },
      share));
  keys.push_back(masking_key(
      "data.mask_token", [](auto& c) -> auto& { return c.data.mask_token; }, count));
}

// Keys of data.format "jsonl".
void jsonl_keys(std::vector<Key>& keys) {
  auto add = [&](Key one) {
    one.get = [get = one.get](const Config& c) {
      return c.data.format == "jsonl" ? get(c) : Json();
    };
    keys.push_back(std::move(one));
  };
  add(choice_key("data.loss_on", [](auto& c) -> auto& { return c.data.loss_on; },
                 {"answers", "all"}));
  Key chosen = key("data.chat_template", [](auto& c) -> auto& { return c.data.chat_template; });
  chosen.get = [get = chosen.get](const Config& c) {
    return c.data.chat_template.empty() ? Json() : get(c);
  };
  add(std::move(chosen));
}

// false, true or "isolated".
Key packing_key() {
  const std::string path = "data.packing";
  auto set = [path](Config& config, const Json& given) {
    std::string& packing = config.data.packing;
    if (const std::optional<bool> truth = truth_of(given)) {
      packing = *truth ? "joined" : "none";
    } else if (given.is_string() && given.string() == "isolated") {
      packing = given.string();
    } else {
      raise(DS_ERROR_CONFIG, "{}: must be false, true or \"isolated\", got {}", KeyName(path),
            given.dump());
    }
  };
  auto get = [](const Config& c) {
    if (c.data.packing == "isolated") return Json(c.data.packing);
    return c.data.format == "jsonl" ? Json(c.data.packing == "joined") : Json();
  };
  return {path, "", set, get};
}

// Run folders of earlier versions have it: batches of a rank, so what an evaluation saw depended on
// the layout.
Key eval_batches_key() {
  const std::string path = "run.eval_batches";
  auto set = [path](Config& config, const Json& given) {
    int64_t batches = 0;
    read_value(path, given, positive, batches);
    config.warnings.push_back(path +
                              ": has no effect any more: evaluations see all held-out samples, or "
                              "run.eval_samples of them");
  };
  return {path, "", set, [](const Config&) { return Json(); }};
}

void run_keys(std::vector<Key>& keys) {
  keys.push_back(key("data.paths", [](auto& c) -> auto& { return c.data.paths; }));
  keys.push_back(choice_key("data.format", [](auto& c) -> auto& { return c.data.format; },
                            {"text", "jsonl", "tokens"}));
  jsonl_keys(keys);
  keys.push_back(packing_key());
  keys.push_back(key("data.tokenizer", [](auto& c) -> auto& { return c.data.tokenizer; }));
  keys.push_back(key(
      "data.heldout", [](auto& c) -> auto& { return c.data.heldout; },
      Limits{.low = 0, .high = 0.9}));
  keys.push_back(bytes_key(
      "data.max_bytes", [](auto& c) -> auto& { return c.data.max_bytes; },
      Limits{.low = 1, .high = 0x1p40}));
  keys.push_back(
      key("data.strip_licences", [](auto& c) -> auto& { return c.data.strip_licences; }));
  masking_keys(keys);
  keys.push_back(key("run.dir", [](auto& c) -> auto& { return c.run.dir; }));
  keys.push_back(key("run.resume", [](auto& c) -> auto& { return c.run.resume; }));
  keys.push_back(key(
      "run.steps", [](auto& c) -> auto& { return c.run.steps; }, count));
  keys.push_back(key(
      "run.eval_every", [](auto& c) -> auto& { return c.run.eval_every; }, count));
  keys.push_back(key(
      "run.eval_samples", [](auto& c) -> auto& { return c.run.eval_samples; }, count));
  keys.push_back(eval_batches_key());
  keys.push_back(key(
      "run.save_every", [](auto& c) -> auto& { return c.run.save_every; }, count));
  keys.push_back(key("run.async_save", [](auto& c) -> auto& { return c.run.async_save; }));
  keys.push_back(
      key("run.device_fallback", [](auto& c) -> auto& { return c.run.device_fallback; }));
  keys.push_back(key(
      "run.keep", [](auto& c) -> auto& { return c.run.keep; }, count));
  keys.push_back(key(
      "run.max_skipped_steps", [](auto& c) -> auto& { return c.run.max_skipped_steps; }, positive));
  keys.push_back(key(
      "run.sample_tokens", [](auto& c) -> auto& { return c.run.sample_tokens; }, count));
  keys.push_back(key(
      "run.sample_every", [](auto& c) -> auto& { return c.run.sample_every; }, count));
  keys.push_back(key("run.bars", [](auto& c) -> auto& { return c.run.bars; }));
  keys.push_back(key("run.pin_threads", [](auto& c) -> auto& { return c.pin_threads; }));
  keys.push_back(key("run.seed", [](auto& c) -> auto& { return c.run.seed; }));
  keys.push_back(key(
      "run.sequence", [](auto& c) -> auto& { return c.sequence; }, positive));
  keys.push_back(key(
      "run.threads", [](auto& c) -> auto& { return c.threads; }, Limits{.low = 0, .high = 1024}));
}

}  // namespace

const std::vector<Key>& config_keys() {
  static const auto& keys = *new auto([] {
    std::vector<Key> all;
    batch_keys(all);
    general_keys(all);
    precision_keys(all);
    optimizer_keys(all);
    scheduler_keys(all);
    zero_keys(all);
    model_keys(all);
    curriculum_keys(all);
    data_efficiency_keys(all);
    run_keys(all);
    return all;
  }());
  return keys;
}

}  // namespace ds
