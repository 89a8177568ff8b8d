#include "core/config/schema.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/config/param_groups.h"

namespace ds {
namespace {

// Counts of things: with these bounds, and those of check_sizes on their products, no size overflows.
constexpr double kMost = 2147483647, kMostElements = 1e15;
constexpr Limits positive{.low = 1, .high = kMost};
constexpr Limits count{.low = 0, .high = kMost};
constexpr Limits positive_elements{.low = 1, .high = kMostElements};
constexpr Limits elements{.low = 0, .high = kMostElements};
constexpr Limits most{.high = kMost};

// A key that is one field: `field` returns a reference into a Config.
template <typename Field>
Key key(std::string path, Field field, Limits limits = {}, std::string other = "") {
  auto set = [path, field, limits](Config& config, const Json& given) {
    read_value(path, given, limits, field(config));
  };
  auto get = [field](const Config& config) { return write_value(field(config)); };
  return {std::move(path), std::move(other), set, get};
}

template <typename Field>
Key bytes_key(std::string path, Field field, Limits limits = not_negative) {
  auto set = [path, field, limits](Config& config, const Json& given) {
    field(config) = parse_bytes(path, given, limits);
  };
  auto get = [field](const Config& config) {
    const int64_t value = field(config);
    return value < 0 ? Json() : Json(value);
  };
  return {std::move(path), "", set, get};
}

// A key of the scheduler's parameters: as key(), but only part of schedulers of the given types ("": any),
// and DeepSpeed's one-element list for its one parameter group is accepted.
template <typename Field>
Key schedule_key(std::string name, std::string_view type, Field field, Limits limits = {}) {
  const std::string path = "scheduler.params." + std::move(name);
  auto applies = [type](const Config& c) {
    return !c.scheduler.type.empty() && (type.empty() || c.scheduler.type == type);
  };
  auto set = [path, field, limits, applies](Config& config, const Json& given) {
    if (!applies(config)) {
      raise(DS_ERROR_CONFIG, "{}: no parameter of scheduler.type \"{}\"", KeyName(path),
            config.scheduler.type);
    }
    const bool list = given.is_array() && given.array().size() == 1;
    read_value(path, list ? given.array()[0] : given, limits, field(config));
  };
  auto get = [field, applies](const Config& config) {
    return applies(config) ? write_value(field(config)) : Json();
  };
  return {path, "", set, get};
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

// Refuses a name that is none of `supported`, telling DeepSpeed's other names from unknown ones.
std::string choose(const std::string& path, const Json& given, const std::vector<std::string>& supported,
                   const std::vector<std::string>& foreign) {
  std::string name;
  read_value(path, given, {}, name);
  for (const std::string& one : supported) {
    if (lower(one) == lower(name)) return one;
  }
  for (const std::string& one : foreign) {
    if (lower(one) == lower(name)) {
      raise(DS_ERROR_CONFIG, "{}: {} is unsupported by this version; supported: {}", KeyName(path), one,
            fmt::join(supported, ", "));
    }
  }
  raise(DS_ERROR_CONFIG, "{}: \"{}\" is unknown; supported: {}", KeyName(path), name,
        fmt::join(supported, ", "));
}

template <typename Field>
Key choice_key(std::string path, Field field, std::vector<std::string> supported,
               std::vector<std::string> foreign = {}) {
  auto set = [=](Config& config, const Json& given) {
    field(config) = choose(path, given, supported, foreign);
  };
  auto get = [field](const Config& config) {
    const std::string& value = field(config);
    return value.empty() ? Json() : Json(value);
  };
  return {path, "", set, get};
}

void batch_keys(std::vector<Key>& keys) {
  keys.push_back(key(
      "train_batch_size", [](auto& c) -> auto& { return c.train_batch; }, most));
  keys.push_back(key(
      "train_micro_batch_size_per_gpu", [](auto& c) -> auto& { return c.micro_batch; }, most));
  keys.push_back(key(
      "gradient_accumulation_steps", [](auto& c) -> auto& { return c.accumulation; },
      Limits{.high = kMostAccumulation}));
}

// The names of make_device(), and those that a plugin would add.
Key device_key() {
  auto set = [](Config& c, const Json& given) {
    std::string name;
    read_value("device", given, {}, name);
    if (name == "cuda" || name.starts_with("cuda:")) {
      raise(DS_ERROR_CONFIG, "{}: \"{}\" needs a CUDA plugin, which this version lacks; supported: {}",
            KeyName("device"), name, fmt::join(kDevices, ", "));
    }
    c.device = choose("device", given, {std::begin(kDevices), std::end(kDevices)}, {});
  };
  return {"device", "", set, [](const Config& c) { return Json(c.device); }};
}

// DeepSpeed's files have Infinity, as Python writes it, for never.
Key steps_per_print_key() {
  auto set = [](Config& c, const Json& given) {
    bool never = given.is_infinity() && !given.is_negative_infinity();
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

void general_keys(std::vector<Key>& keys) {
  keys.push_back(key(
      "gradient_clipping", [](auto& c) -> auto& { return c.gradient_clipping; }, not_negative));
  keys.push_back({"bf16.enabled", "",
                  [](Config& c, const Json& given) {
                    bool on = false;
                    read_value("bf16.enabled", given, {}, on);
                    c.compute = on ? DS_DTYPE_BF16 : DS_DTYPE_F32;
                  },
                  [](const Config& c) { return Json(c.compute == DS_DTYPE_BF16); }});
  keys.push_back(steps_per_print_key());
  keys.push_back(key("tensorboard.enabled", [](auto& c) -> auto& { return c.tensorboard; }));
  keys.push_back(key("csv_monitor.enabled", [](auto& c) -> auto& { return c.csv_monitor; }));
  keys.push_back(key("comms_logger.enabled", [](auto& c) -> auto& { return c.comms_logger.enabled; }));
  keys.push_back(key("comms_logger.prof_all", [](auto& c) -> auto& { return c.comms_logger.all; }));
  keys.push_back(key("comms_logger.prof_ops", [](auto& c) -> auto& { return c.comms_logger.operations; }));
  keys.push_back(key(
      "comm_timeout_ms", [](auto& c) -> auto& { return c.comm_timeout_ms; }, positive));
  keys.push_back(key("communicator", [](auto& c) -> auto& { return c.communicator; }));
  keys.push_back(device_key());
  keys.push_back(choice_key("reduction", [](auto& c) -> auto& { return c.reduction; }, {"micro", "tree"},
                            {"boundary", "vendor"}));
  keys.push_back(key("sparse_gradients", [](auto& c) -> auto& { return c.sparse_gradients; }));
  keys.push_back(key("reproducible", [](auto& c) -> auto& { return c.reproducible; }));
  keys.push_back(key(
      "topology.nodes", [](auto& c) -> auto& { return c.nodes; }, count));
  keys.push_back(key("frozen_parameters", [](auto& c) -> auto& { return c.frozen; }));
  keys.push_back(key("emulate_tiers", [](auto& c) -> auto& { return c.emulate_tiers; }));
  keys.push_back(
      choice_key("fused_head", [](auto& c) -> auto& { return c.fused_head; }, {"auto", "always", "never"}));
  keys.push_back(key("recompute", [](auto& c) -> auto& { return c.recompute; }));
  keys.push_back(bytes_key("memory_budget.device", [](auto& c) -> auto& { return c.memory_budget.device; }));
  keys.push_back(bytes_key("memory_budget.host", [](auto& c) -> auto& { return c.memory_budget.host; }));
  keys.push_back(bytes_key("memory_budget.nvme", [](auto& c) -> auto& { return c.memory_budget.nvme; }));
}

// A key that only optimizers of one family have.
Key only_for(bool adam, Key key) {
  auto applies = [adam](const Config& c) { return c.optimizer.adam() == adam; };
  key.set = [path = key.path, applies, set = key.set](Config& config, const Json& given) {
    if (!applies(config)) {
      raise(DS_ERROR_CONFIG, "{}: no parameter of optimizer.type \"{}\"", KeyName(path),
            config.optimizer.type);
    }
    set(config, given);
  };
  key.get = [applies, get = key.get](const Config& config) { return applies(config) ? get(config) : Json(); };
  return key;
}

// A key that only optimizers have that compress their momentum, or only the others.
Key only_if(bool compressed, Key key) {
  key.set = [compressed, path = key.path, set = key.set](Config& config, const Json& given) {
    if (config.optimizer.compressed() != compressed) {
      raise(DS_ERROR_CONFIG, "{}: no parameter of optimizer.type \"{}\"", KeyName(path),
            config.optimizer.type);
    }
    set(config, given);
  };
  key.get = [compressed, get = key.get](const Config& config) {
    return config.optimizer.compressed() == compressed ? get(config) : Json();
  };
  return key;
}

Key betas_key() {
  auto set = [](Config& c, const Json& given) {
    const std::string path = "optimizer.params.betas";
    if (!given.is_array() || given.array().size() != 2) {
      raise(DS_ERROR_CONFIG, "{}: expected two numbers, got {}", KeyName(path), given.dump());
    }
    read_value(path + "[0]", given.array()[0], decay, c.optimizer.beta1);
    read_value(path + "[1]", given.array()[1], decay, c.optimizer.beta2);
  };
  auto get = [](const Config& c) { return Json(Json::Array{c.optimizer.beta1, c.optimizer.beta2}); };
  return {"optimizer.params.betas", "", set, get};
}

Key param_groups_key() {
  auto set = [](Config& c, const Json& given) {
    const std::string path = "optimizer.param_groups";
    if (!given.is_array())
      raise(DS_ERROR_CONFIG, "{}: expected a list of objects, got {}", KeyName(path), given.dump());
    for (size_t i = 0; i < given.array().size(); ++i) {
      c.optimizer.groups.push_back(
          read_param_group(fmt::format("{}[{}]", path, i), given.array()[i], c.optimizer, true));
    }
  };
  auto get = [](const Config& c) {
    Json::Array groups;
    for (const ParamGroup& group : c.optimizer.groups) groups.push_back(param_group_json(c.optimizer, group));
    return Json(groups);
  };
  return {"optimizer.param_groups", "", set, get};
}

void optimizer_keys(std::vector<Key>& keys) {
  const std::string params = "optimizer.params.";
  keys.push_back(choice_key("optimizer.type", [](auto& c) -> auto& { return c.optimizer.type; },
                            {"Adam", "AdamW", "SGD", "OneBitAdam"},
                            {"Lamb", "OneBitLamb", "ZeroOneAdam", "Muon", "Adagrad", "Lion"}));
  keys.push_back(key(
      params + "lr", [](auto& c) -> auto& { return c.optimizer.lr; }, not_negative));
  keys.push_back(only_for(true, betas_key()));
  keys.push_back(
      only_for(true, key(
                         params + "eps", [](auto& c) -> auto& { return c.optimizer.eps; }, not_negative)));
  keys.push_back(key(
      params + "weight_decay", [](auto& c) -> auto& { return c.optimizer.weight_decay; }, not_negative));
  keys.push_back(only_for(true, only_if(false, key(params + "adam_w_mode", [](auto& c) -> auto& {
                                          return c.optimizer.adam_w_mode;
                                        }))));
  keys.push_back(
      only_if(true, key(
                        params + "freeze_step", [](auto& c) -> auto& { return c.optimizer.freeze_step; },
                        Limits{.low = 1, .high = kMostElements})));
  keys.push_back(only_for(
      false, key(
                 params + "momentum", [](auto& c) -> auto& { return c.optimizer.momentum; }, not_negative)));
  keys.push_back(
      only_for(false, key(params + "nesterov", [](auto& c) -> auto& { return c.optimizer.nesterov; })));
  keys.push_back(param_groups_key());
}

Key warmup_type_key() {
  auto set = [](Config& c, const Json& given) {
    c.scheduler.warmup_linear =
        choose("scheduler.params.warmup_type", given, {"log", "linear"}, {}) == "linear";
  };
  auto get = [](const Config& c) {
    return c.scheduler.type.empty() ? Json() : Json(c.scheduler.warmup_linear ? "linear" : "log");
  };
  return {"scheduler.params.warmup_type", "", set, get};
}

void scheduler_keys(std::vector<Key>& keys) {
  keys.push_back(choice_key("scheduler.type", [](auto& c) -> auto& { return c.scheduler.type; },
                            {"WarmupLR", "WarmupCosineLR"}, {"WarmupDecayLR", "OneCycle", "LRRangeTest"}));
  keys.push_back(schedule_key(
      "warmup_num_steps", "", [](auto& c) -> auto& { return c.scheduler.warmup_num_steps; }, positive));
  keys.push_back(schedule_key(
      "warmup_min_lr", "WarmupLR", [](auto& c) -> auto& { return c.scheduler.warmup_min_lr; }, not_negative));
  Key max = schedule_key(
      "warmup_max_lr", "WarmupLR", [](auto& c) -> auto& { return c.scheduler.warmup_max_lr; }, not_negative);
  max.set = [set = max.set](Config& c, const Json& given) {
    set(c, given);
    c.scheduler.warmup_max_given = true;
  };
  keys.push_back(max);
  keys.push_back(schedule_key(
      "total_num_steps", "WarmupCosineLR", [](auto& c) -> auto& { return c.scheduler.total_num_steps; },
      positive));
  keys.push_back(schedule_key(
      "warmup_min_ratio", "WarmupCosineLR", [](auto& c) -> auto& { return c.scheduler.warmup_min_ratio; },
      not_negative));
  keys.push_back(schedule_key(
      "cos_min_ratio", "WarmupCosineLR", [](auto& c) -> auto& { return c.scheduler.cos_min_ratio; },
      not_negative));
  keys.push_back(warmup_type_key());
}

// nvme_path belongs to both offload sections; libds has one scratch folder.
Key nvme_path_key(const std::string& section, Tier ZeroConfig::*tier) {
  const std::string path = "zero_optimization." + section + ".nvme_path";
  auto set = [path](Config& c, const Json& given) {
    std::string folder;
    read_value(path, given, {}, folder);
    if (!c.zero.nvme_path.empty() && c.zero.nvme_path != folder) {
      raise(DS_ERROR_CONFIG,
            "{}: \"{}\" differs from \"{}\" of the other offload section; one folder is used", KeyName(path),
            folder, c.zero.nvme_path);
    }
    c.zero.nvme_path = folder;
  };
  auto get = [tier](const Config& c) { return c.zero.*tier == Tier::nvme ? Json(c.zero.nvme_path) : Json(); };
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
  keys.push_back(
      key(zero + "zero_quantized_weights", [](auto& c) -> auto& { return c.zero.quantized_weights; }));
  keys.push_back(
      key(zero + "zero_quantized_gradients", [](auto& c) -> auto& { return c.zero.quantized_gradients; }));
  Key bits = key(
      zero + "zero_quantized_gradients_bits", [](auto& c) -> auto& { return c.zero.gradient_bits; },
      Limits{.low = 4, .high = 8});
  bits.get = [get = bits.get](const Config& c) { return c.zero.quantized_gradients ? get(c) : Json(); };
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
      "reduce_bucket_size", [](auto& c) -> auto& { return c.zero.reduce_bucket_size; }, positive_elements);
  add(
      "stage3_prefetch_bucket_size", [](auto& c) -> auto& { return c.zero.prefetch_bucket_size; }, elements,
      "prefetch_bucket_size");
  add(
      "stage3_max_live_parameters", [](auto& c) -> auto& { return c.zero.max_live_parameters; }, elements,
      "max_live_parameters");
  add(
      "stage3_max_reuse_distance", [](auto& c) -> auto& { return c.zero.max_reuse_distance; }, elements,
      "max_reuse_distance");
  add(
      "stage3_param_persistence_threshold",
      [](auto& c) -> auto& { return c.zero.param_persistence_threshold; }, elements,
      "param_persistence_threshold");
  add(
      "sub_group_size", [](auto& c) -> auto& { return c.zero.sub_group_size; }, positive_elements);
  add("overlap_comm", [](auto& c) -> auto& { return c.zero.overlap_comm; }, {});
  add("offload_optimizer.device", [](auto& c) -> auto& { return c.zero.optimizer_tier; }, {});
  keys.push_back(nvme_path_key("offload_optimizer", &ZeroConfig::optimizer_tier));
  add(
      "offload_optimizer.buffer_count", [](auto& c) -> auto& { return c.zero.buffer_count; }, positive);
  add(
      "mics_shard_size", [](auto& c) -> auto& { return c.zero.mics_shard_size; },
      Limits{.low = -1, .high = kMost});
  add("mics_hierarchical_params_gather", [](auto& c) -> auto& { return c.zero.mics_hierarchical_gather; },
      {});
  add(
      "zero_hpz_partition_size", [](auto& c) -> auto& { return c.zero.hpz_partition_size; }, positive);
  add("offload_param.device", [](auto& c) -> auto& { return c.zero.param_tier; }, {});
  keys.push_back(nvme_path_key("offload_param", &ZeroConfig::param_tier));
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
  keys.push_back(choice_key("model.family", [](auto& c) -> auto& { return c.model.family; }, {"gpt"}));
  auto of_folder = [&](Key one) {
    one.get = [get = one.get](const Config& c) { return c.model.folder.empty() ? Json() : get(c); };
    keys.push_back(std::move(one));
  };
  of_folder(key("model.folder", [](auto& c) -> auto& { return c.model.folder; }));
  of_folder(choice_key("model.init", [](auto& c) -> auto& { return c.model.init; }, {"folder", "random"}));
  of_folder(key("model.mask", [](auto& c) -> auto& { return c.model.mask; }));
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
      "data.random_replace_prob", [](auto& c) -> auto& { return c.data.random_replace_prob; }, share));
  keys.push_back(masking_key(
      "data.mask_token", [](auto& c) -> auto& { return c.data.mask_token; }, count));
}

void run_keys(std::vector<Key>& keys) {
  keys.push_back(key("data.paths", [](auto& c) -> auto& { return c.data.paths; }));
  keys.push_back(key("data.tokenizer", [](auto& c) -> auto& { return c.data.tokenizer; }));
  keys.push_back(key(
      "data.heldout", [](auto& c) -> auto& { return c.data.heldout; }, Limits{.low = 0, .high = 0.9}));
  keys.push_back(bytes_key(
      "data.max_bytes", [](auto& c) -> auto& { return c.data.max_bytes; }, Limits{.low = 1, .high = 0x1p40}));
  keys.push_back(key("data.strip_licences", [](auto& c) -> auto& { return c.data.strip_licences; }));
  masking_keys(keys);
  keys.push_back(key("run.dir", [](auto& c) -> auto& { return c.run.dir; }));
  keys.push_back(key(
      "run.steps", [](auto& c) -> auto& { return c.run.steps; }, count));
  keys.push_back(key(
      "run.eval_every", [](auto& c) -> auto& { return c.run.eval_every; }, count));
  keys.push_back(key(
      "run.eval_batches", [](auto& c) -> auto& { return c.run.eval_batches; },
      Limits{.low = 1, .high = 1 << 20}));
  keys.push_back(key(
      "run.save_every", [](auto& c) -> auto& { return c.run.save_every; }, count));
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
  static const std::vector<Key> keys = [] {
    std::vector<Key> all;
    batch_keys(all);
    general_keys(all);
    optimizer_keys(all);
    scheduler_keys(all);
    zero_keys(all);
    model_keys(all);
    run_keys(all);
    return all;
  }();
  return keys;
}

}  // namespace ds
