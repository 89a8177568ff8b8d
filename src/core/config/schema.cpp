#include "core/config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/config/optimizer_types.h"
#include "core/config/curriculum.h"
#include "core/config/param_groups.h"
#include "core/config/schedule.h"

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

// DeepSpeed's words for floating types, and torch's with or without "torch.".
DType precision_word(const std::string& path, const Json& given, const std::vector<std::string>& supported) {
  std::string word;
  read_value(path, given, {}, word);
  std::string name = lower(word);
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
      raise(DS_ERROR_CONFIG, "{}: true excludes bf16.enabled: true; enable one of them", KeyName(path));
    c.compute = dtype;
  };
  return {path, "", set, [=](const Config& c) { return Json(c.compute == dtype); }};
}

// A static scale must stay finite as an f32, and so must the first dynamic one.
constexpr Limits scale_limits{.low = 0, .high = 1e38}, power_limits{.low = 0, .high = 126};

void precision_keys(std::vector<Key>& keys) {
  keys.push_back(enabled_key("bf16.enabled", DS_DTYPE_BF16));
  keys.push_back(key("bf16.check_grad_overflow", [](auto& c) -> auto& { return c.check_grad_overflow; }));
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
      "fp16.min_loss_scale", [](auto& c) -> auto& { return c.loss_scale.min_loss_scale; }, scale_limits));
  const std::string communication = "communication_data_type";
  keys.push_back({communication, "",
                  [=](Config& c, const Json& given) {
                    c.communication = precision_word(communication, given, {"fp32", "fp16", "bf16"});
                  },
                  [](const Config& c) {
                    if (c.communication == DS_DTYPE_NONE) return Json();
                    return Json(c.communication == DS_DTYPE_F32   ? "fp32"
                                : c.communication == DS_DTYPE_F16 ? "fp16"
                                                                  : "bf16");
                  }});
  keys.push_back(key("torch_autocast.enabled", [](auto& c) -> auto& { return c.autocast.enabled; }));
  const std::string autocast = "torch_autocast.dtype";
  keys.push_back(
      {autocast, "",
       [=](Config& c, const Json& given) {
         DType dtype = precision_word(autocast, given, {"bfloat16", "bf16", "float16", "half", "fp16"});
         c.autocast.dtype = dtype == DS_DTYPE_F16 ? "f16" : "bf16";
       },
       [](const Config& c) { return Json(c.autocast.dtype == "f16" ? "torch.float16" : "torch.bfloat16"); }});
}

void monitor_keys(std::vector<Key>& keys, const std::string& section, MonitorConfig Config::*monitor) {
  keys.push_back(key(section + ".enabled", [monitor](auto& c) -> auto& { return (c.*monitor).enabled; }));
  keys.push_back(
      key(section + ".output_path", [monitor](auto& c) -> auto& { return (c.*monitor).output_path; }));
  keys.push_back(key(section + ".job_name", [monitor](auto& c) -> auto& { return (c.*monitor).job_name; }));
}

void general_keys(std::vector<Key>& keys) {
  keys.push_back(key(
      "gradient_clipping", [](auto& c) -> auto& { return c.gradient_clipping; }, not_negative));
  keys.push_back(steps_per_print_key());
  monitor_keys(keys, "tensorboard", &Config::tensorboard);
  monitor_keys(keys, "csv_monitor", &Config::csv_monitor);
  monitor_keys(keys, "jsonl_monitor", &Config::jsonl_monitor);
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
  keys.push_back(
      choice_key("recompute", [](auto& c) -> auto& { return c.recompute; }, {"none", "cheap", "layers"}));
  Key interval = key(
      "recompute_num_layers", [](auto& c) -> auto& { return c.recompute_num_layers; }, positive);
  interval.get = [get = interval.get](const Config& c) { return c.recompute == "layers" ? get(c) : Json(); };
  keys.push_back(std::move(interval));
  keys.push_back(bytes_key("memory_budget.device", [](auto& c) -> auto& { return c.memory_budget.device; }));
  keys.push_back(bytes_key("memory_budget.host", [](auto& c) -> auto& { return c.memory_budget.host; }));
  keys.push_back(bytes_key("memory_budget.nvme", [](auto& c) -> auto& { return c.memory_budget.nvme; }));
}

// A key of optimizer.params that not all optimizers have.
Key of_type(Key key) {
  auto applies = [name = key.path.substr(key.path.rfind('.') + 1)](const Config& c) {
    return has_param(c.optimizer, name);
  };
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

// The type comes first: what it does not say of its parameters are its defaults.
Key optimizer_type_key() {
  auto set = [](Config& c, const Json& given) {
    std::vector<std::string> names;
    for (const OptimizerType& type : optimizer_types()) names.push_back(type.name);
    std::string name = choose("optimizer.type", given, names, {"OneBitLamb", "ZeroOneAdam", "Muon"});
    for (const OptimizerType& type : optimizer_types()) {
      if (type.name == name) c.optimizer = type.defaults;
    }
  };
  return {"optimizer.type", "", set, [](const Config& c) { return Json(c.optimizer.type); }};
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
    for (const ParamGroup& group : c.optimizer.groups) {
      if (!group.norms_and_biases) groups.push_back(param_group_json(c.optimizer, group));
    }
    return Json(groups);
  };
  return {"optimizer.param_groups", "", set, get};
}

// A type of elements as graphs print it: f32 or bf16.
template <typename Field>
Key type_key(std::string path, Field field) {
  auto set = [path, field](Config& c, const Json& given) {
    field(c) = choose(path, given, {"f32", "bf16"}, {}) == "bf16" ? DS_DTYPE_BF16 : DS_DTYPE_F32;
  };
  auto get = [field](const Config& c) { return Json(dtype_name(field(c))); };
  return {std::move(path), "", set, get};
}

// A boolean that says that elements are bf16.
template <typename Field>
Key bf16_key(std::string path, Field field) {
  auto set = [path, field](Config& c, const Json& given) {
    bool on = false;
    read_value(path, given, {}, on);
    if (on) field(c) = DS_DTYPE_BF16;
  };
  auto get = [field](const Config& c) { return Json(field(c) == DS_DTYPE_BF16); };
  return {std::move(path), "", set, get};
}

// DeepSpeed's keys, which round to nearest, and those of libds.
void state_type_keys(std::vector<Key>& keys) {
  keys.push_back(type_key("optimizer.states", [](auto& c) -> auto& { return c.optimizer.states; }));
  Key rounding{"optimizer.rounding", "", {}, {}};
  rounding.set = [](Config& c, const Json& given) {
    c.optimizer.stochastic =
        choose("optimizer.rounding", given, {"nearest", "stochastic"}, {}) == "stochastic";
  };
  rounding.get = [](const Config& c) { return Json(c.optimizer.stochastic ? "stochastic" : "nearest"); };
  keys.push_back(std::move(rounding));
  keys.push_back(
      bf16_key("bf16.bf16_master_weights_and_grads", [](auto& c) -> auto& { return c.optimizer.masters; }));
  Key states = bf16_key("bf16.bf16_optimizer_states", [](auto& c) -> auto& { return c.optimizer.states; });
  states.get = [get = states.get](const Config& c) {
    return c.optimizer.masters == DS_DTYPE_BF16 ? get(c) : Json();
  };
  keys.push_back(std::move(states));
}

// Behind param_groups, whose groups come first.
Key no_decay_key() {
  auto set = [](Config& c, const Json& given) {
    choose("optimizer.no_decay", given, {"norms_and_biases"}, {});
    c.optimizer.groups.push_back({{}, {{"weight_decay", 0}}, true});
  };
  auto get = [](const Config& c) {
    const std::vector<ParamGroup>& groups = c.optimizer.groups;
    return groups.empty() || !groups.back().norms_and_biases ? Json() : Json("norms_and_biases");
  };
  return {"optimizer.no_decay", "", set, get};
}

void optimizer_keys(std::vector<Key>& keys) {
  keys.push_back(optimizer_type_key());
  auto add = [&](const char* name, auto field, Limits limits = {}) {
    keys.push_back(of_type(key(std::string("optimizer.params.") + name, field, limits)));
  };
  add(
      "lr", [](auto& c) -> auto& { return c.optimizer.lr; }, not_negative);
  keys.push_back(of_type(betas_key()));
  add(
      "eps", [](auto& c) -> auto& { return c.optimizer.eps; }, not_negative);
  add(
      "weight_decay", [](auto& c) -> auto& { return c.optimizer.weight_decay; }, not_negative);
  add("adam_w_mode", [](auto& c) -> auto& { return c.optimizer.adam_w_mode; });
  add("bias_correction", [](auto& c) -> auto& { return c.optimizer.bias_correction; });
  add(
      "freeze_step", [](auto& c) -> auto& { return c.optimizer.freeze_step; },
      Limits{.low = 1, .high = kMostElements});
  add(
      "momentum", [](auto& c) -> auto& { return c.optimizer.momentum; }, not_negative);
  add("dampening", [](auto& c) -> auto& { return c.optimizer.dampening; });
  add("nesterov", [](auto& c) -> auto& { return c.optimizer.nesterov; });
  add("maximize", [](auto& c) -> auto& { return c.optimizer.maximize; });
  add(
      "lr_decay", [](auto& c) -> auto& { return c.optimizer.lr_decay; }, not_negative);
  add(
      "initial_accumulator_value", [](auto& c) -> auto& { return c.optimizer.initial_accumulator; },
      not_negative);
  add(
      "max_coeff", [](auto& c) -> auto& { return c.optimizer.max_coeff; }, not_negative);
  add(
      "min_coeff", [](auto& c) -> auto& { return c.optimizer.min_coeff; }, not_negative);
  add("eps_inside_sqrt", [](auto& c) -> auto& { return c.optimizer.eps_inside_sqrt; });
  keys.push_back(param_groups_key());
  keys.push_back(no_decay_key());
  add("fp32_optimizer_states", [](auto& c) -> auto& { return c.optimizer.fp32_states; });
  state_type_keys(keys);
}

// The type of a schedule, with what its parameters are when the document does not give them.
Key scheduler_type_key() {
  auto set = [](Config& c, const Json& given) {
    std::vector<std::string> types;
    for (const ScheduleType& type : schedule_types()) types.emplace_back(type.type);
    c.scheduler = make_schedule(choose("scheduler.type", given, types, {}));
  };
  auto get = [](const Config& c) { return c.scheduler.type.empty() ? Json() : Json(c.scheduler.type); };
  return {"scheduler.type", "", set, get};
}

// The number `name` of the configured schedule; nullptr: it has none.
const ScheduleNumber* schedule_number(const Config& c, const std::string& name) {
  const ScheduleType* type = find_schedule(c.scheduler.type);
  if (!type) return nullptr;
  auto found = std::find_if(type->numbers.begin(), type->numbers.end(),
                            [&](const ScheduleNumber& number) { return number.name == name; });
  return found == type->numbers.end() ? nullptr : &*found;
}

[[noreturn]] void no_parameter_of(const std::string& path, const Config& c) {
  raise(DS_ERROR_CONFIG, "{}: no parameter of scheduler.type \"{}\"", KeyName(path), c.scheduler.type);
}

double read_schedule_number(const std::string& path, const Json& given, const ScheduleNumber& number) {
  double value = 0;
  if (number.kind == ScheduleNumber::Kind::flag) {
    bool on = false;
    read_value(path, given, {}, on);
    return on ? 1 : 0;
  }
  if (number.kind == ScheduleNumber::Kind::steps) {
    int64_t steps = 0;
    read_value(path, given, number.limits, steps);
    return static_cast<double>(steps);
  }
  read_value(path, given, number.limits, value);
  return value;
}

Json write_schedule_number(double value, const ScheduleNumber& number) {
  if (std::isnan(value)) return {};
  switch (number.kind) {
    case ScheduleNumber::Kind::flag:
      return Json(value != 0);
    case ScheduleNumber::Kind::steps:
      return Json(static_cast<int64_t>(value));
    case ScheduleNumber::Kind::real:
      break;
  }
  return Json(value);
}

// A list has a value for each group of parameters. A list of one is DeepSpeed's way to write the value of its
// one group.
Key schedule_number_key(const std::string& name) {
  const std::string path = "scheduler.params." + name;
  auto set = [path, name](Config& c, const Json& given) {
    const ScheduleNumber* number = schedule_number(c, name);
    if (!number) no_parameter_of(path, c);
    std::vector<double>& values = c.scheduler.numbers[name];
    values.clear();
    const bool list = given.is_array();
    const size_t count = list ? given.array().size() : 1, groups = 1 + c.optimizer.groups.size();
    if (list && count != 1 && (!number->of_groups || count != groups)) {
      raise(DS_ERROR_CONFIG, "{}: expected a number{}, got {} values", KeyName(path),
            number->of_groups ? fmt::format(" or {} of them, one for each group", groups) : "", count);
    }
    for (size_t i = 0; i < count; ++i) {
      const std::string at = list ? fmt::format("{}[{}]", path, i) : path;
      values.push_back(read_schedule_number(at, list ? given.array()[i] : given, *number));
    }
  };
  auto get = [name](const Config& c) {
    const ScheduleNumber* number = schedule_number(c, name);
    if (!number) return Json();
    const std::vector<double>& values = c.scheduler.numbers.at(name);
    if (values.size() == 1) return write_schedule_number(values[0], *number);
    Json::Array list;
    for (double value : values) list.push_back(write_schedule_number(value, *number));
    return Json(list);
  };
  return {path, "", set, get};
}

Key schedule_word_key(const ScheduleWord& word) {
  const std::string path = fmt::format("scheduler.params.{}", word.name), name = word.name;
  std::vector<std::string> values(word.values.begin(), word.values.end());
  auto set = [=](Config& c, const Json& given) {
    if (!c.scheduler.words.contains(name)) no_parameter_of(path, c);
    c.scheduler.words[name] = choose(path, given, values, {});
  };
  auto get = [name](const Config& c) {
    auto found = c.scheduler.words.find(name);
    return found == c.scheduler.words.end() ? Json() : Json(found->second);
  };
  return {path, "", set, get};
}

void scheduler_keys(std::vector<Key>& keys) {
  keys.push_back(scheduler_type_key());
  std::vector<std::string> made;
  auto fresh = [&](const char* name) {
    if (std::find(made.begin(), made.end(), name) != made.end()) return false;
    made.emplace_back(name);
    return true;
  };
  for (const ScheduleType& type : schedule_types()) {
    for (const ScheduleNumber& number : type.numbers) {
      if (fresh(number.name)) keys.push_back(schedule_number_key(number.name));
    }
    for (const ScheduleWord& word : type.words) {
      if (fresh(word.name)) keys.push_back(schedule_word_key(word));
    }
  }
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
      "stage3_model_persistence_threshold",
      [](auto& c) -> auto& { return c.zero.model_persistence_threshold; }, Limits{.low = 0},
      "model_persistence_threshold");
  add(
      "sub_group_size", [](auto& c) -> auto& { return c.zero.sub_group_size; }, elements);
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

// Keys of data.format "jsonl".
void jsonl_keys(std::vector<Key>& keys) {
  auto add = [&](Key one) {
    one.get = [get = one.get](const Config& c) { return c.data.format == "jsonl" ? get(c) : Json(); };
    keys.push_back(std::move(one));
  };
  add(choice_key("data.loss_on", [](auto& c) -> auto& { return c.data.loss_on; }, {"answers", "all"}));
  add(key("data.packing", [](auto& c) -> auto& { return c.data.packing; }));
  Key chosen = key("data.chat_template", [](auto& c) -> auto& { return c.data.chat_template; });
  chosen.get = [get = chosen.get](const Config& c) { return c.data.chat_template.empty() ? Json() : get(c); };
  add(std::move(chosen));
}

void run_keys(std::vector<Key>& keys) {
  keys.push_back(key("data.paths", [](auto& c) -> auto& { return c.data.paths; }));
  keys.push_back(
      choice_key("data.format", [](auto& c) -> auto& { return c.data.format; }, {"text", "jsonl", "tokens"}));
  jsonl_keys(keys);
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
    precision_keys(all);
    optimizer_keys(all);
    scheduler_keys(all);
    zero_keys(all);
    model_keys(all);
    curriculum_keys(all);
    run_keys(all);
    return all;
  }();
  return keys;
}

}  // namespace ds
