// The types of optimizers with their parameters and defaults. Types may share a row of
// optim/optimizer.cpp: AdamW is Adam whose decay is always decoupled from the gradient.
#include "optim/optimizer_types.h"

#include <algorithm>
#include <utility>

#include "core/base/contains.h"
#include "core/base/error.h"

namespace ds {
namespace {

OptimizerType adam(std::string name) {
  return {name,
          {"betas", "eps", "adam_w_mode", "bias_correction", "fp32_optimizer_states"},
          {.type = name}};
}

// The defaults are those of the classes that DeepSpeed runs, in this order: DeepSpeedCPUAdam and
// FusedAdam, torch.optim.SGD, DeepSpeedCPULion, DeepSpeedCPUAdagrad, FusedLamb, OnebitAdam,
// ZeroOneAdam, OnebitLamb, MuonWithAuxAdam. The update of Callback is a function of the host.
std::vector<OptimizerType>& all_types() {
  static auto& types = *new std::vector<OptimizerType>{
      adam("Adam"),
      adam("AdamW"),
      {"SGD", {"momentum", "dampening", "nesterov", "maximize"}, {.type = "SGD"}},
      {"Lion", {"betas"}, {.type = "Lion"}},
      {"Adagrad",
       {"eps", "lr_decay", "initial_accumulator_value"},
       {.type = "Adagrad", .lr = 1e-2, .eps = 1e-10}},
      {"Lamb",
       {"betas", "eps", "bias_correction", "max_coeff", "min_coeff", "eps_inside_sqrt"},
       {.type = "Lamb"}},
      {"OneBitAdam",
       {"betas", "eps", "bias_correction", "freeze_step"},
       {.type = "OneBitAdam", .bias_correction = false}},
      {"ZeroOneAdam",
       {"betas", "eps", "bias_correction", "var_freeze_step", "var_update_scaler",
        "local_step_scaler", "local_step_clipper"},
       {.type = "ZeroOneAdam", .bias_correction = false}},
      {"OneBitLamb",
       {"betas", "eps", "bias_correction", "max_coeff", "min_coeff", "freeze_step", "coeff_beta",
        "factor_max", "factor_min", "factor_threshold"},
       {.type = "OneBitLamb", .bias_correction = false}},
      {"Muon",
       {"momentum", "ns_method", "muon_lr", "adam_lr", "betas", "eps", "adam_w_mode",
        "bias_correction"},
       {.type = "Muon", .lr = 0.02, .beta2 = 0.95, .eps = 1e-10, .momentum = 0.95}},
      {"Callback", {"states", "betas", "eps", "momentum"}, {.type = "Callback"}},
  };
  return types;
}

}  // namespace

const std::vector<OptimizerType>& optimizer_types() { return all_types(); }

void add_optimizer_type(OptimizerType type) {
  for (const OptimizerType& known : all_types())
    require(known.name != type.name, "optimizer.type \"{}\" is already registered", type.name);
  all_types().push_back(std::move(type));
}

bool has_param(const OptimizerConfig& optimizer, std::string_view name) {
  if (name == "lr" || name == "weight_decay") return true;
  for (const OptimizerType& type : optimizer_types()) {
    if (type.name != optimizer.type) continue;
    return contains(type.params, name);
  }
  return false;
}

}  // namespace ds
