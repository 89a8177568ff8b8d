#include "optim/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/needs.h"
#include "core/config/refuse.h"
#include "core/program/instruction.h"
#include "optim/optimizer_types.h"
#include "optim/param_groups.h"
#include "optim/rate_rules.h"

namespace ds {
namespace {

// Restricts a key of optimizer.params to the types that have it (optim/optimizer_types.h): other
// types refuse it and do not print it.
Key& of_type(Key& key) {
  auto applies = [name = key.path.substr(key.path.rfind('.') + 1)](const Config& c) {
    return has_param(c.optimizer, name);
  };
  key.set = [path = key.path, applies, set = key.set](Config& config, const Json& given) {
    if (!applies(config)) {
      // All of torch's optimizers have maximize, so files that were written from torch's defaults
      // contain it with the value false.
      if (path == "optimizer.params.maximize" && truth_of(given) == false) return;
      refuse(path, "not a parameter of optimizer.type \"{}\"", config.optimizer.type);
    }
    set(config, given);
  };
  return key.when(applies);
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const OptimizerType& type : optimizer_types()) names.push_back(type.name);
  return names;
}

// Returns the key optimizer.type. It is set first, because setting it replaces the whole section by
// the defaults of the type.
Key optimizer_type_key() {
  auto set = [](Config& c, const Json& given) {
    std::string name = choose("optimizer.type", given, type_names());
    for (const OptimizerType& type : optimizer_types()) {
      if (type.name == name) c.optimizer = type.defaults;
    }
  };
  auto get = [](const Config& c) { return Json(c.optimizer.type); };
  return {
      "optimizer.type",
      set,
      get,
      KeyKind::text,
      "`Adam`, `AdamW`, `SGD`, `Lion`, `Adagrad`, `Lamb`, `OneBitAdam`, `ZeroOneAdam`, "
      "`OneBitLamb`, `Muon` or `Callback`, any case. A parameter that the chosen type does not "
      "have is refused. With `Callback`, a function of the host updates each element "
      "(`ds_engine_options.update`). `Muon` makes the momentum of every matrix orthogonal and "
      "leaves parameters of fewer than two dimensions, and those with \"embed\" or \"lm_head\" in "
      "their name, to AdamW ([ADR 42](../adr/0042-muon-gathers-momentum.md)). `OneBitAdam` is Adam "
      "without bias correction and with decoupled decay, and after `freeze_step` ranks average "
      "momenta, at one bit per element, instead of gradients; it needs ZeRO stage 0 or 1. "
      "`OneBitLamb` does the same with LAMB. `ZeroOneAdam` also leaves messages out: before "
      "`var_freeze_step` it updates the variance more and more rarely; afterwards ranks step "
      "independently and synchronise at intervals. It needs stage 0 "
      "([deepspeed_compat.md](deepspeed_compat.md))",
      {},
      type_names()};
}

// Returns the key of the betas, which are one value in the configuration, as in PyTorch, and two
// fields here.
Key betas_key() {
  auto set = [](Config& c, const Json& given) {
    read_betas("optimizer.params.betas", given, c.optimizer.beta1, c.optimizer.beta2);
  };
  auto get = [](const Config& c) {
    return Json(Json::Array{c.optimizer.beta1, c.optimizer.beta2});
  };
  return {"optimizer.params.betas",
          set,
          get,
          KeyKind::pair,
          "Adam, AdamW, Lamb, 1-bit optimizers, Muon's AdamW: decay of the moments, 0 to below 1. "
          "Lion: the share of the moment in the direction of the step, and the decay of the moment",
          decay};
}

// Returns the key of the groups. It is set after the type and the parameters of the optimizer,
// because the members of a group depend on the type. A group of no_decay is printed by its own key.
Key param_groups_key() {
  auto set = [](Config& c, const Json& given) {
    const std::string path = "optimizer.param_groups";
    if (!given.is_array()) refuse(path, "expected a list of objects, got {}", given.dump());
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
  return {"optimizer.param_groups", set, get, KeyKind::objects,
          "parameters that have their own values for the update: `[{\"params\": [\"*.bias\", "
          "\"*norm*\"], \"weight_decay\": 0}]`. `params` are names with `*` and `?` as in file "
          "names, and each must match a parameter; `lr`, `weight_decay`, `betas`, `eps`, "
          "`momentum`, `muon_lr` and `adam_lr`, as far as the optimizer has them, replace those of "
          "`optimizer.params`; with Muon, `lr` is the rate of matrices and of the parameters of "
          "AdamW in the group, unless `muon_lr` or `adam_lr` is given. Groups are numbered from 1; "
          "group 0 has every other parameter. A parameter in two groups is refused. A schedule "
          "begins from the group's `lr`; if `scheduler.params.warmup_max_lr` is given, which "
          "applies to every group, a group's rates are refused. `ds_engine_group_add` adds groups "
          "between steps, and `ds_engine_set` changes their values"};
}

// Returns a boolean key that sets `field` to BF16.
Key bf16_key(std::string path, DType OptimizerConfig::*field, const char* doc) {
  auto set = [path, field](Config& c, const Json& given) {
    if (read_value<bool>(path, given)) c.optimizer.*field = DS_DTYPE_BF16;
  };
  auto get = [field](const Config& c) { return Json(c.optimizer.*field == DS_DTYPE_BF16); };
  return {std::move(path), set, get, KeyKind::boolean, doc};
}

// Appends the keys for the types of masters and states: optimizer.states and rounding, which only
// libds has, and DeepSpeed's keys under bf16.
void state_type_keys(KeyList& keys) {
  KeyRows rows(keys, "optimizer.", &Config::optimizer);
  rows.choice(
      "states", &OptimizerConfig::states,
      {{"f32", DS_DTYPE_F32}, {"bf16", DS_DTYPE_BF16}, {"u8", DS_DTYPE_U8}},
      "`f32`, `bf16` or `u8`: the type of the optimizer's states, other than masters. "
      "`u8`, for Adam and AdamW, means 8-bit codes with a scale for each block of 256 "
      "elements ([ADR 40](../adr/0040-states-in-8-bits.md)). Lamb, Muon and Callback keep f32");
  rows.choice("rounding", &OptimizerConfig::stochastic, {{"nearest", false}, {"stochastic", true}},
              "how masters in bf16 and states in bf16 or u8 are rounded: `nearest`, or "
              "`stochastic`, to one of the two neighbours by a draw that depends on seed, step, "
              "parameter and element, so that the bits depend neither on stage, tier and ranks nor "
              "on bucket sizes. With `nearest`, an update changes a bf16 second moment with beta2 "
              "0.999 by less than its last bit, so it soon stops changing");
  add_key(keys, bf16_key("bf16.bf16_master_weights_and_grads", &OptimizerConfig::masters,
                         "there are no f32 masters: updates change the bf16 parameters. Gradients "
                         "are still summed in f32. The key needs `bf16.enabled`"));
  add_key(keys, bf16_key("bf16.bf16_optimizer_states", &OptimizerConfig::states,
                         "the same as `optimizer.states` \"bf16\", but it needs "
                         "`bf16.bf16_master_weights_and_grads`, as in DeepSpeed"))
      .when([](const Config& c) { return c.optimizer.masters == DS_DTYPE_BF16; });
}

// Returns the key no_decay, which adds a group after those of param_groups and so is set after
// them.
Key no_decay_key() {
  const KeyWords words{"norms_and_biases"};
  auto set = [words](Config& c, const Json& given) {
    choose("optimizer.no_decay", given, words);
    c.optimizer.groups.push_back({{}, {{"weight_decay", 0}}, true});
  };
  auto get = [](const Config& c) {
    const std::vector<ParamGroup>& groups = c.optimizer.groups;
    return groups.empty() || !groups.back().norms_and_biases ? Json() : Json("norms_and_biases");
  };
  return {"optimizer.no_decay",
          set,
          get,
          KeyKind::text,
          "`norms_and_biases` adds a last group with weight decay 0, which has every parameter of "
          "fewer than two dimensions that is in no group of `optimizer.param_groups`",
          {},
          words};
}

// Refuses names of states that checkpoints could not keep apart from others.
void check_state_names(const std::vector<std::string>& names) {
  const char* path = "optimizer.params.states";
  if (names.size() > kMostOwnStates)
    refuse(path, "expected at most {} names, got {}", kMostOwnStates, names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    const bool plain = name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == name.npos;
    if (name.empty() || name.size() > 64 || name[0] < 'a' || !plain)
      refuse(path,
             "expected names of 1 to 64 characters a-z, 0-9 and _ that begin with a letter, got "
             "\"{}\"",
             name);
    if (name == "param" || name == "master" || name == "grad")
      refuse(path, "\"{}\" is reserved, because every element has such a value", name);
    if (std::find(names.begin(), names.begin() + static_cast<int64_t>(i), name) !=
        names.begin() + static_cast<int64_t>(i))
      refuse(path, "\"{}\" is given twice", name);
  }
}

// Appends the keys of the optimizers that compress.
void one_bit_keys(const auto& add) {
  using O = OptimizerConfig;
  constexpr Limits steps{.low = 1, .high = kMostElements};
  add("freeze_step", &O::freeze_step,
      "OneBitAdam, OneBitLamb: the number of updates with reduced gradients, at least 1; skipped "
      "steps do not count. Afterwards the variance is frozen and momenta are compressed, and "
      "`ds_engine_freeze` refuses to train a parameter that has had no update, because its "
      "variance would be 0. `eps` bounds the step of an element whose variance was nearly 0 at the "
      "freeze: choose 1e-5 rather than 1e-8 (`./run bench onebit loss`)",
      steps);
  add("var_freeze_step", &O::var_freeze_step,
      "ZeroOneAdam: the number of updates, at least 1, after which the variance is frozen for good "
      "and ranks step independently",
      steps);
  add("var_update_scaler", &O::var_update_scaler,
      "ZeroOneAdam: the number of updates of the variance after which the interval between them "
      "doubles. These updates use reduced gradients; in the steps between them, gradients are sent "
      "as signs",
      steps);
  add("local_step_scaler", &O::local_step_scaler,
      "ZeroOneAdam: the interval between synchronisations is 1 step at the freeze and doubles each "
      "time this many steps have passed",
      steps);
  add("local_step_clipper", &O::local_step_clipper,
      "ZeroOneAdam: the largest number of steps from one synchronisation to the next", steps);
  add("coeff_beta", &O::coeff_beta,
      "OneBitLamb: the decay of the running mean of each parameter's trust ratio before the "
      "freeze, 0 to below 1; ratios of exactly 1 are left out",
      decay);
  add("factor_max", &O::factor_max,
      "OneBitLamb: the largest factor by which this mean is multiplied after the freeze",
      not_negative);
  add("factor_min", &O::factor_min,
      "OneBitLamb: the smallest factor by which this mean is multiplied after the freeze",
      not_negative);
  add("factor_threshold", &O::factor_threshold,
      "OneBitLamb: the largest relative change of this factor in a step", not_negative);
}

}  // namespace

// Keys are set and documented in this order: the type, its parameters, then the groups, whose
// members depend on the type.
void optimizer_keys(KeyList& keys) {
  using O = OptimizerConfig;
  add_key(keys, optimizer_type_key());
  KeyRows rows(keys, "optimizer.params.", &Config::optimizer);
  auto add = [&](const char* name, auto field, const char* doc, Limits limits = {}) -> Key& {
    return of_type(rows.add(name, field, doc, limits));
  };
  add("lr", &O::lr, "learning rate", not_negative).shown("1e-3 (Adagrad 1e-2, Muon 0.02)");
  of_type(add_key(keys, betas_key())).shown("[0.9, 0.999] (Muon [0.9, 0.95])");
  add("eps", &O::eps,
      "Adam, AdamW, Adagrad, Lamb, 1-bit optimizers, Muon's AdamW: added to the root of the second "
      "moment or of the sum of squares",
      not_negative)
      .shown("1e-8 (Adagrad, Muon 1e-10)");
  add("weight_decay", &O::weight_decay,
      "weight decay. SGD and Adagrad add the decay to the gradient; Lamb adds it to the step from "
      "which the trust ratio is computed",
      not_negative)
      .shown("0 (0.01 with `torch_adam`)");
  add("adam_w_mode", &O::adam_w_mode,
      "Adam, Muon's AdamW: the decay is decoupled from the gradient; false: it is added to the "
      "gradient (L2). Type `AdamW` always decouples it");
  add("bias_correction", &O::bias_correction,
      "Adam, AdamW, Lamb, Muon's AdamW: the moments are corrected for their start at 0; false: "
      "they are used uncorrected. 1-bit optimizers never correct them; they accept true with a "
      "warning")
      .shown("true (1-bit optimizers false)");
  one_bit_keys(add);
  add("momentum", &O::momentum, "SGD, Muon: the share of the momentum buffer that an update keeps",
      not_negative)
      .shown("0 (Muon 0.95)");
  add("dampening", &O::dampening,
      "SGD: the share of the gradient that does not enter the momentum buffer; the first gradient "
      "enters it whole");
  add("nesterov", &O::nesterov,
      "SGD: Nesterov's look-ahead step; it needs momentum above 0 and dampening 0");
  add("muon_lr", &O::muon_lr, "Muon: the rate of matrices; 0.02 if `lr` is not given either",
      not_negative)
      .shown("`lr`");
  add("adam_lr", &O::adam_lr,
      "Muon: the rate of the parameters that AdamW updates; 3e-4 if `lr` is not given either. A "
      "schedule applies to both rates; one that names a rate (`warmup_max_lr`, `cycle_min_lr`, "
      "`lr_range_test_min_lr`) sets both to it, as in DeepSpeed. Dynamic batching scales both",
      not_negative)
      .shown("`lr`");
  of_type(rows.words(
      "ns_method", &O::ns_method, {"gram", "standard"},
      "Muon: the Newton-Schulz iteration works on square products of each matrix, in f32 (`gram`), "
      "or on the matrices themselves, in bf16 if `bf16.enabled` is true (`standard`)"));
  add("maximize", &O::maximize, "SGD: steps ascend the gradient");
  add("lr_decay", &O::lr_decay, "Adagrad: update t has the rate lr / (1 + (t - 1) * lr_decay)",
      not_negative);
  add("initial_accumulator_value", &O::initial_accumulator,
      "Adagrad: the first update of a parameter adds it to the sum of squares", not_negative);
  add("max_coeff", &O::max_coeff,
      "Lamb, OneBitLamb: the largest trust ratio, which is the norm of a parameter divided by that "
      "of its step",
      not_negative);
  add("min_coeff", &O::min_coeff,
      "Lamb, OneBitLamb: the smallest trust ratio; if one of the two norms is 0, the ratio is 1",
      not_negative);
  add("eps_inside_sqrt", &O::eps_inside_sqrt,
      "Lamb: `eps` is added inside the square root instead of to its result");
  add("states", &O::own_states,
      "Callback: the names of up to 8 states that each element has beside its value, all 0 at "
      "first; letters a to z, digits and `_`, beginning with a letter")
      .then([](const Config& c) { check_state_names(c.optimizer.own_states); });
  add_key(keys, param_groups_key()).shown("none");
  add_key(keys, no_decay_key());
  add("fp32_optimizer_states", &O::fp32_states,
      "Adam, AdamW: false keeps states in the type of the masters, which is f32 unless "
      "`bf16.bf16_master_weights_and_grads` is set");
  state_type_keys(keys);
}

// Completes and checks masters and states that are narrower than f32. DeepSpeed has bf16 states
// only together with bf16 masters, so its key for states needs its key for masters. With
// optimizer.states, bf16 states may also accompany f32 masters.
void complete_state_types(Config& c) {
  OptimizerConfig& o = c.optimizer;
  constexpr const char* kMasters = "bf16.bf16_master_weights_and_grads";
  const bool bf16_masters = o.masters == DS_DTYPE_BF16;
  constexpr const char* kStates = "bf16.bf16_optimizer_states";
  using enum ConfigNeed::Kind;
  static const std::vector<ConfigNeed> rows{{kMasters, {"true"}, needs, "bf16.enabled", {"true"}},
                                            {kStates,
                                             {"true"},
                                             needs,
                                             kMasters,
                                             {"true"},
                                             "; optimizer.states \"bf16\" is beside f32 masters"}};
  const bool own = c.origins.contains("optimizer.states");
  check_needs(c, std::span(rows).first(own ? 1 : 2));
  if (!o.fp32_states && bf16_masters && o.states == DS_DTYPE_F32) o.states = DS_DTYPE_BF16;
  if (o.states == DS_DTYPE_U8 && o.type != "Adam" && o.type != "AdamW") {
    refuse("optimizer.states", "\"u8\" is for Adam and AdamW, but optimizer.type is \"{}\"",
           o.type);
  }
  if (o.states == DS_DTYPE_U8 && !o.stochastic) {
    c.warnings.emplace_back(
        "optimizer.rounding: to nearest, second moments of 8 bits stand still; \"stochastic\" "
        "keeps small changes on average");
  }
  const bool lean = bf16_masters || o.states != DS_DTYPE_F32;
  if (lean && (o.type == "Lamb" || o.type == "Muon" || o.type == "Callback")) {
    refuse("optimizer.type", "\"{}\" keeps masters and states in f32, but {} is bf16", o.type,
           bf16_masters ? kMasters : "optimizer.states");
  }
  if (o.stochastic && !lean) {
    refuse("optimizer.rounding",
           "\"stochastic\" needs masters or states in fewer bits than f32, but optimizer.states is "
           "\"f32\"");
  }
}

// Replaces flags that contradict the type, with a warning, and refuses contradictions between
// parameters.
void complete_optimizer(Config& c, const ConfigDocument& reader) {
  complete_rates(c);
  if (c.optimizer.type == "AdamW" && !c.optimizer.adam_w_mode) {
    c.optimizer.adam_w_mode = true;
    c.origins["optimizer.params.adam_w_mode"] = "derived";
    c.warnings.emplace_back(
        "optimizer.params.adam_w_mode: AdamW decays apart from the gradient; it is taken as true");
  }
  // In DeepSpeed torch_adam selects torch's AdamW, whose default weight decay is 0.01.
  const Given* torch = reader.find("optimizer.params.torch_adam");
  const bool adam = c.optimizer.type == "Adam" || c.optimizer.type == "AdamW";
  if (torch && truth_of(torch->value) == true && adam && c.optimizer.adam_w_mode &&
      !c.origins.contains("optimizer.params.weight_decay")) {
    c.optimizer.weight_decay = 0.01;
    c.origins["optimizer.params.weight_decay"] = "derived";
  }
  if (c.optimizer.compressed() && c.optimizer.bias_correction) {
    c.optimizer.bias_correction = false;
    c.origins["optimizer.params.bias_correction"] = "derived";
    c.warnings.push_back(fmt::format(
        "optimizer.params.bias_correction: {} never corrects the bias; it is taken as false",
        c.optimizer.type));
  }
  if (c.skip_missing &&
      (c.optimizer.compressed() || c.optimizer.type == "Lamb" || c.optimizer.type == "Muon")) {
    refuse("missing_gradients",
           "\"skip\" needs an optimizer that updates each element by itself, but optimizer.type is "
           "\"{}\"",
           c.optimizer.type);
  }
  if (c.optimizer.nesterov && c.optimizer.momentum == 0) {
    refuse("optimizer.params.nesterov", "true needs optimizer.params.momentum above 0, got {}",
           c.optimizer.momentum);
  }
  if (const std::string wrong = refusal_of(c.optimizer, "momentum", c.optimizer.momentum);
      !wrong.empty())
    refuse("optimizer.params.momentum", "{}", wrong);
  if (c.optimizer.nesterov && c.optimizer.dampening != 0) {
    refuse("optimizer.params.nesterov", "true needs dampening 0, got {}", c.optimizer.dampening);
  }
  if (c.optimizer.min_coeff > c.optimizer.max_coeff) {
    raise(DS_ERROR_CONFIG, "{} {} is above optimizer.params.max_coeff {}",
          KeyName("optimizer.params.min_coeff"), c.optimizer.min_coeff, c.optimizer.max_coeff);
  }
}

}  // namespace ds
