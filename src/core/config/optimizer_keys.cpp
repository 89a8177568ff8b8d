#include "core/config/optimizer_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config.h"
#include "core/config/key_kinds.h"
#include "core/config/optimizer_types.h"
#include "core/config/param_groups.h"
#include "core/config/values.h"

namespace ds {
namespace {

// A key of optimizer.params that not all optimizers have.
Key of_type(Key key) {
  auto applies = [name = key.path.substr(key.path.rfind('.') + 1)](const Config& c) {
    return has_param(c.optimizer, name);
  };
  key.set = [path = key.path, applies, set = key.set](Config& config, const Json& given) {
    if (!applies(config)) {
      // torch's optimizers all have it, and files that were written from their defaults do, too.
      if (path == "optimizer.params.maximize" && truth_of(given) == false) return;
      raise(DS_ERROR_CONFIG, "{}: no parameter of optimizer.type \"{}\"", KeyName(path),
            config.optimizer.type);
    }
    set(config, given);
  };
  key.get = [applies, get = key.get](const Config& config) {
    return applies(config) ? get(config) : Json();
  };
  return key;
}

// The type comes first: what it does not say of its parameters are its defaults.
Key optimizer_type_key() {
  auto set = [](Config& c, const Json& given) {
    std::vector<std::string> names;
    for (const OptimizerType& type : optimizer_types()) names.push_back(type.name);
    std::string name = choose("optimizer.type", given, names, {});
    for (const OptimizerType& type : optimizer_types()) {
      if (type.name == name) c.optimizer = type.defaults;
    }
  };
  return {"optimizer.type", "", set, [](const Config& c) { return Json(c.optimizer.type); }};
}

// A rate that is optimizer.params.lr where it is not given.
template <typename Field>
Key rate_key(std::string path, Field field) {
  auto set = [path, field](Config& c, const Json& given) {
    double rate = 0;
    read_value(path, given, not_negative, rate);
    field(c) = rate;
  };
  auto get = [field](const Config& c) { return field(c) ? Json(*field(c)) : Json(); };
  return of_type({std::move(path), "", set, get});
}

Key ns_method_key() {
  const std::string path = "optimizer.params.ns_method";
  auto set = [path](Config& c, const Json& given) {
    c.optimizer.ns_method = choose(path, given, {"gram", "standard"}, {});
  };
  return of_type({path, "", set, [](const Config& c) { return Json(c.optimizer.ns_method); }});
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
  auto get = [](const Config& c) {
    return Json(Json::Array{c.optimizer.beta1, c.optimizer.beta2});
  };
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

// A type of elements as graphs print it.
template <typename Field>
Key type_key(std::string path, Field field) {
  auto set = [path, field](Config& c, const Json& given) {
    const std::string name = choose(path, given, {"f32", "bf16", "u8"}, {});
    field(c) = name == "u8" ? DS_DTYPE_U8 : name == "bf16" ? DS_DTYPE_BF16 : DS_DTYPE_F32;
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
  rounding.get = [](const Config& c) {
    return Json(c.optimizer.stochastic ? "stochastic" : "nearest");
  };
  keys.push_back(std::move(rounding));
  keys.push_back(bf16_key("bf16.bf16_master_weights_and_grads",
                          [](auto& c) -> auto& { return c.optimizer.masters; }));
  Key states =
      bf16_key("bf16.bf16_optimizer_states", [](auto& c) -> auto& { return c.optimizer.states; });
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

}  // namespace

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
  const Limits count{.low = 1, .high = kMostElements};
  add(
      "var_freeze_step", [](auto& c) -> auto& { return c.optimizer.var_freeze_step; }, count);
  add(
      "var_update_scaler", [](auto& c) -> auto& { return c.optimizer.var_update_scaler; }, count);
  add(
      "local_step_scaler", [](auto& c) -> auto& { return c.optimizer.local_step_scaler; }, count);
  add(
      "local_step_clipper", [](auto& c) -> auto& { return c.optimizer.local_step_clipper; }, count);
  add(
      "coeff_beta", [](auto& c) -> auto& { return c.optimizer.coeff_beta; }, decay);
  add(
      "factor_max", [](auto& c) -> auto& { return c.optimizer.factor_max; }, not_negative);
  add(
      "factor_min", [](auto& c) -> auto& { return c.optimizer.factor_min; }, not_negative);
  add(
      "factor_threshold", [](auto& c) -> auto& { return c.optimizer.factor_threshold; },
      not_negative);
  add(
      "momentum", [](auto& c) -> auto& { return c.optimizer.momentum; }, not_negative);
  add("dampening", [](auto& c) -> auto& { return c.optimizer.dampening; });
  add("nesterov", [](auto& c) -> auto& { return c.optimizer.nesterov; });
  keys.push_back(
      rate_key("optimizer.params.muon_lr", [](auto& c) -> auto& { return c.optimizer.muon_lr; }));
  keys.push_back(
      rate_key("optimizer.params.adam_lr", [](auto& c) -> auto& { return c.optimizer.adam_lr; }));
  keys.push_back(ns_method_key());
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

}  // namespace ds
