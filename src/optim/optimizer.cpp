#include "optim/optimizer.h"

#include <algorithm>
#include <cstdint>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/round.h"

namespace ds {
namespace {

// Masters and states in bf16 are rounded by draws.
void add_rounding(const OptimizerConfig& o, Attrs& attrs) {
  if (o.stochastic) attrs.set("stochastic", int64_t{1});
}

// What is as by default is left out, so that programs say what is special.
Attrs adam_attrs(const OptimizerConfig& o) {
  Attrs attrs{{"l2", static_cast<int64_t>(o.adam_w_mode ? 0 : 1)}};
  if (!o.bias_correction) attrs.set("bias_correction", int64_t{0});
  add_rounding(o, attrs);
  return attrs;
}

// Of what is no matrix.
Attrs muon_adam_attrs(const OptimizerConfig& o) {
  Attrs attrs = adam_attrs(o);
  attrs.set("own_rate", int64_t{1});
  return attrs;
}

// As DeepSpeed has it: neither corrected nor with decay in the gradient.
Attrs onebit_adam_attrs(const OptimizerConfig&) {
  return {{"l2", int64_t{0}}, {"bias_correction", int64_t{0}}};
}

StepForm onebit_form(const OptimizerConfig& o, int64_t updates) {
  return updates < o.freeze_step ? StepForm::reduced : StepForm::compressed;
}

StepForm onebit_lamb_form(const OptimizerConfig& o, int64_t updates) {
  return updates == o.freeze_step ? StepForm::freezing : onebit_form(o, updates);
}

// Intervals of 0/1 Adam look at step numbers as DeepSpeed counts them, whose first step is a dry
// run: the first update is step 2.
constexpr int64_t kFirstStep = 2;

// Whether the variance is updated: the steps are multiples of an interval that doubles after every
// var_update_scaler of them.
bool updates_variance(const OptimizerConfig& o, int64_t step) {
  int64_t from = kFirstStep;
  for (int64_t interval = 1; interval <= step; interval *= 2) {
    int64_t first = ceil_div(from, interval) * interval;
    if (step < first) return false;
    int64_t before = (step - first) / interval, behind = (step - first) % interval;
    if (before < o.var_update_scaler && behind == 0) return true;
    if (before < o.var_update_scaler - 1) return false;
    from = first + (o.var_update_scaler - 1) * interval + 1;
  }
  return false;
}

// Behind the freeze the interval doubles every local_step_scaler steps.
bool synchronises(const OptimizerConfig& o, int64_t updates) {
  int64_t doubled = (updates - o.var_freeze_step) / o.local_step_scaler;
  int64_t interval =
      doubled >= 50 ? o.local_step_clipper : std::min(o.local_step_clipper, int64_t{1} << doubled);
  return (updates + kFirstStep) % interval == 0;
}

StepForm zero_one_form(const OptimizerConfig& o, int64_t updates) {
  if (updates < o.var_freeze_step)
    return updates_variance(o, updates + kFirstStep) ? StepForm::reduced : StepForm::gradients;
  if (updates == o.var_freeze_step) return StepForm::freezing;  // the interval is 1
  return synchronises(o, updates) ? StepForm::compressed : StepForm::local;
}

Attrs sgd_attrs(const OptimizerConfig& o) {
  Attrs attrs{{"nesterov", static_cast<int64_t>(o.nesterov ? 1 : 0)}};
  if (o.dampening != 0) attrs.set("dampening", o.dampening);
  if (o.maximize) attrs.set("maximize", int64_t{1});
  add_rounding(o, attrs);
  return attrs;
}

Attrs lion_attrs(const OptimizerConfig& o) {
  Attrs attrs;
  add_rounding(o, attrs);
  return attrs;
}

Attrs adagrad_attrs(const OptimizerConfig& o) {
  Attrs attrs;
  if (o.lr_decay != 0) attrs.set("lr_decay", o.lr_decay);
  if (o.initial_accumulator != 0) attrs.set("initial", o.initial_accumulator);
  add_rounding(o, attrs);
  return attrs;
}

Attrs lamb_attrs(const OptimizerConfig& o) {
  Attrs attrs{{"eps_inside_sqrt", static_cast<int64_t>(o.eps_inside_sqrt ? 1 : 0)}};
  if (!o.bias_correction) attrs.set("bias_correction", int64_t{0});
  return attrs;
}

Attrs lamb_ratio_attrs(const OptimizerConfig& o) {
  return {{"min_coeff", o.min_coeff}, {"max_coeff", o.max_coeff}};
}

// As DeepSpeed has it: never corrected.
Attrs onebit_lamb_attrs(const OptimizerConfig&) {
  return {{"eps_inside_sqrt", int64_t{0}}, {"bias_correction", int64_t{0}}};
}

Attrs onebit_lamb_ratio_attrs(const OptimizerConfig& o) {
  Attrs attrs = lamb_ratio_attrs(o);
  attrs.set("coeff_beta", o.coeff_beta);
  return attrs;
}

}  // namespace

const char* form_name(StepForm form) {
  constexpr const char* names[] = {"step", "gradients", "freezing", "compressed", "local"};
  return names[static_cast<size_t>(form)];
}

const std::vector<Optimizer>& optimizers() {
  static const auto& rows = *new std::vector<Optimizer>{
      {{"Adam", "AdamW"},
       Op::adamw,
       {"exp_avg", "exp_avg_sq"},
       adam_attrs,
       std::nullopt,
       Op::adamw_codes},
      {{"SGD"}, Op::sgd, {"momentum_buffer"}, sgd_attrs},
      {{"Lion"}, Op::lion, {"exp_avg"}, lion_attrs},
      {{"Adagrad"}, Op::adagrad, {"sum"}, adagrad_attrs},
      {{"Lamb"},
       Op::lamb,
       {"exp_avg", "exp_avg_sq"},
       lamb_attrs,
       NormRatios{Op::lamb_moments, Op::lamb_ratios, lamb_ratio_attrs}},
      {.types = {"OneBitAdam"},
       .op = Op::adamw,
       .states = {"exp_avg", "exp_avg_sq"},
       .attrs = onebit_adam_attrs,
       .compression = Compression{Compression::Of::momentum, {StepForm::compressed}, onebit_form}},
      {.types = {"ZeroOneAdam"},
       .op = Op::adamw,
       .states = {"exp_avg", "exp_avg_sq"},
       .attrs = onebit_adam_attrs,
       .compression = Compression{Compression::Of::steps,
                                  {StepForm::gradients, StepForm::freezing, StepForm::compressed,
                                   StepForm::local},
                                  zero_one_form}},
      {.types = {"OneBitLamb"},
       .op = Op::lamb,
       .states = {"exp_avg", "exp_avg_sq", "exp_avg_sq_fresh"},
       .attrs = onebit_lamb_attrs,
       .by_norms = NormRatios{Op::lamb_moments, Op::lamb_ratios, onebit_lamb_ratio_attrs},
       .compression = Compression{Compression::Of::momenta,
                                  {StepForm::freezing, StepForm::compressed},
                                  onebit_lamb_form}},
      // Momentum is a mean of gradients, as Adam's first state is.
      {.types = {"Muon"},
       .op = Op::adamw,
       .states = {"exp_avg", "exp_avg_sq"},
       .attrs = muon_adam_attrs,
       .matrices = MatrixUpdate{Op::muon_momentum, Op::muon, 1e-7, 3.4445, -4.7750, 2.0315, 5}},
  };
  return rows;
}

void set_matrix(const OptimizerConfig& config, ParamSpec& param, const Shape& shape) {
  if (shape.rank() < 2 || !optimizer_of(config).matrices) return;
  std::string name = ascii_lower(param.name);
  if (name.find("embed") != name.npos || name.find("lm_head") != name.npos) return;
  if (shape.rank() > 3) {
    raise(DS_ERROR_UNSUPPORTED,
          "{}: {} updates matrices and stacks of them, parameter '{}' has {} dimensions",
          KeyName("optimizer.type"), config.type, TensorName(param.name), shape.rank());
  }
  param.rows = shape[shape.rank() - 2].extent;
  param.cols = shape[shape.rank() - 1].extent;
}

const Optimizer& optimizer_of(const OptimizerConfig& config) {
  for (const Optimizer& row : optimizers()) {
    if (std::find(row.types.begin(), row.types.end(), config.type) != row.types.end()) return row;
  }
  raise(DS_ERROR_CONFIG, "{}: \"{}\" is unknown", KeyName("optimizer.type"), config.type);
}

}  // namespace ds
