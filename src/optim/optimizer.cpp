// The table of optimizers, and for optimizers that compress the form of each step.
//
// The attributes of an instruction are written into the text of a program and thereby into plan
// hashes, so an attribute with its default value is left out: adding one leaves the hashes of other
// plans as they are.
//
// The 1-bit optimizers change what ranks exchange during a run. 1-bit Adam (arXiv:2102.02888) and
// 1-bit LAMB (arXiv:2104.06069) reduce gradients until freeze_step, then freeze the variance and
// exchange signs of momenta. 0/1 Adam (arXiv:2202.06009) updates its variance at growing intervals
// until var_freeze_step, and then lets ranks step by themselves between synchronisations, whose
// intervals also grow. The form of a step depends only on the number of updates before it, so a
// resumed run needs nothing else to continue. All intervals are those of DeepSpeed.
#include "optim/optimizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/contains.h"
#include "core/base/error.h"
#include "core/base/round.h"

namespace ds {
namespace {

using Extent = StateRow::Extent;

// Adds the attribute for stochastic rounding of masters and states.
void add_rounding(const OptimizerConfig& o, Attrs& attrs) {
  if (o.stochastic) attrs.set("stochastic", int64_t{1});
}

// Returns the attributes of adamw. `l2` is always written, even if it is 0.
Attrs adam_attrs(const OptimizerConfig& o) {
  Attrs attrs{{"l2", static_cast<int64_t>(o.adam_w_mode ? 0 : 1)}};
  if (!o.bias_correction) attrs.set("bias_correction", int64_t{0});
  add_rounding(o, attrs);
  return attrs;
}

// Returns the attributes for the parameters that Muon leaves to AdamW. They have their own rate,
// GroupScalars::adam_lr.
Attrs muon_adam_attrs(const OptimizerConfig& o) {
  Attrs attrs = adam_attrs(o);
  attrs.set("own_rate", int64_t{1});
  return attrs;
}

// Returns the attributes of adamw in 1-bit optimizers. As in DeepSpeed, the bias is not corrected,
// and the weight decay is decoupled from the gradient.
Attrs onebit_adam_attrs(const OptimizerConfig&) {
  return {{"l2", int64_t{0}}, {"bias_correction", int64_t{0}}};
}

StepForm onebit_form(const OptimizerConfig& o, int64_t updates) {
  return updates < o.freeze_step ? StepForm::reduced : StepForm::compressed;
}

StepForm onebit_lamb_form(const OptimizerConfig& o, int64_t updates) {
  return updates == o.freeze_step ? StepForm::freezing : onebit_form(o, updates);
}

// The number of the first update of 0/1 Adam, as DeepSpeed counts steps: its step 1 is a dry run.
constexpr int64_t kFirstStep = 2;

// Returns whether this step updates the variance. The variance is updated in steps that are
// multiples of an interval, which doubles after every var_update_scaler updates of the variance.
// The loop goes from one length of the interval to the next, so it takes O(log step) time. `first`
// is the first updating step with the current interval, and `before` counts the complete intervals
// from there to this step.
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

// Returns whether ranks synchronise in the step after `updates` updates, which follows the freeze.
// The interval doubles every local_step_scaler steps, up to local_step_clipper, which is below
// 2^50.
bool synchronises(const OptimizerConfig& o, int64_t updates) {
  int64_t doubled = (updates - o.var_freeze_step) / o.local_step_scaler;
  int64_t interval =
      doubled >= 50 ? o.local_step_clipper : std::min(o.local_step_clipper, int64_t{1} << doubled);
  return (updates + kFirstStep) % interval == 0;
}

StepForm zero_one_form(const OptimizerConfig& o, int64_t updates) {
  if (updates < o.var_freeze_step)
    return updates_variance(o, updates + kFirstStep) ? StepForm::reduced : StepForm::gradients;
  // The interval is 1 at first, so the first step after the freeze synchronises.
  if (updates == o.var_freeze_step) return StepForm::freezing;
  return synchronises(o, updates) ? StepForm::compressed : StepForm::local;
}

Attrs no_attrs(const OptimizerConfig&) { return {}; }

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

// Returns the attributes of lamb in 1-bit LAMB. As in DeepSpeed, the bias is never corrected.
Attrs onebit_lamb_attrs(const OptimizerConfig&) {
  return {{"eps_inside_sqrt", int64_t{0}}, {"bias_correction", int64_t{0}}};
}

Attrs onebit_lamb_ratio_attrs(const OptimizerConfig& o) {
  Attrs attrs = lamb_ratio_attrs(o);
  attrs.set("coeff_beta", o.coeff_beta);
  return attrs;
}

// Returns the optimizers of libds. The list is a deque because optimizer_of() returns references,
// which must remain valid when a row is added.
std::deque<Optimizer> built_in() {
  const StateRow whole_momentum{"exp_avg", Extent::whole};
  // The sum of this rank's steps since the last synchronisation. The rank computes with the masters
  // plus this sum.
  const StateRow own_steps{std::string(kOwnSteps), Extent::whole, StateRow::Saved::own,
                           StateRow::Forgotten::rearranged};
  const StateRow sent_signs = error_row(kWorkerError, Extent::signs),
                 answered_signs = error_row(kServerError, Extent::answered_signs);
  const StateRow coefficients{std::string(kCoefficients), Extent::params, StateRow::Saved::common};
  // The elements that pad the joined tensor to whole chunks. As in DeepSpeed they are exchanged
  // with the momenta and come back changed, so they are a state.
  const StateRow filling{std::string(kFilling), Extent::filling, StateRow::Saved::own,
                         StateRow::Forgotten::rearranged};
  return {
      {{"Adam", "AdamW"},
       "adamw",
       {{"exp_avg"}, {"exp_avg_sq"}},
       adam_attrs,
       std::nullopt,
       std::string("adamw_codes")},
      {{"SGD"}, "sgd", {{"momentum_buffer"}}, sgd_attrs},
      {{"Lion"}, "lion", {{"exp_avg"}}, lion_attrs},
      {{"Adagrad"}, "adagrad", {{"sum"}}, adagrad_attrs},
      {{"Lamb"},
       "lamb",
       {{"exp_avg"}, {"exp_avg_sq"}},
       lamb_attrs,
       NormRatios{"lamb_moments", "lamb_ratios", lamb_ratio_attrs}},
      {.types = {"OneBitAdam"},
       .op = "adamw",
       .states = {whole_momentum, {"exp_avg_sq"}, sent_signs, answered_signs},
       .attrs = onebit_adam_attrs,
       .compression = Compression{Compression::Of::momentum, {StepForm::compressed}, onebit_form}},
      {.types = {"ZeroOneAdam"},
       .op = "adamw",
       .states = {{"exp_avg", Extent::part, StateRow::Saved::both},
                  {"exp_avg_sq"},
                  own_steps,
                  sent_signs,
                  answered_signs},
       .attrs = onebit_adam_attrs,
       .compression = Compression{Compression::Of::steps,
                                  {StepForm::gradients, StepForm::freezing, StepForm::compressed,
                                   StepForm::local},
                                  zero_one_form}},
      {.types = {"OneBitLamb"},
       .op = "lamb",
       .states = {whole_momentum, {"exp_avg_sq"}, {"exp_avg_sq_fresh"}},
       .attrs = onebit_lamb_attrs,
       .by_norms = NormRatios{"lamb_moments", "lamb_ratios", onebit_lamb_ratio_attrs},
       .compression = Compression{Compression::Of::momenta,
                                  {StepForm::freezing, StepForm::compressed},
                                  onebit_lamb_form},
       .joint = {coefficients, sent_signs, answered_signs, filling}},
      // Muon's momentum is a mean of gradients, so it shares the name of Adam's first state. The
      // coefficients are those of Keller Jordan's Newton-Schulz iteration.
      {.types = {"Muon"},
       .op = "adamw",
       .states = {{"exp_avg"}, {.name = "exp_avg_sq", .of_matrices = false}},
       .attrs = muon_adam_attrs,
       .matrices = MatrixUpdate{"muon_momentum", "muon", 1e-7, 3.4445, -4.7750, 2.0315, 5}},
      {.types = {"Callback"}, .op = "callback", .attrs = no_attrs, .by_callback = true},
  };
}

std::deque<Optimizer>& optimizers() {
  static auto& rows = *new std::deque<Optimizer>(built_in());
  return rows;
}

// Returns the row of an update by callback that has these states. Rows are made once for each list
// and stay, because optimizer_of() returns references.
const Optimizer& with_states(const Optimizer& row, const std::vector<std::string>& states) {
  static std::mutex mutex;
  static auto& rows = *new std::map<std::vector<std::string>, Optimizer>;
  const std::scoped_lock lock(mutex);
  const auto [made, is_new] = rows.try_emplace(states, row);
  if (is_new) {
    for (const std::string& name : states) made->second.states.push_back({name});
  }
  return made->second;
}

// Checks the properties of states that the loops over state rows assume.
void check_states(const Optimizer& row) {
  const std::string& type = row.types.front();
  auto own = std::ranges::find_if(row.states, [](const StateRow& s) { return !s.canonical(); });
  require(std::none_of(own, row.states.end(), [](const StateRow& s) { return s.canonical(); }),
          "states of optimizer '{}': canonical ones must come first, got one after '{}'", type,
          own == row.states.end() ? "" : own->name);
  for (const StateRow& state : row.states) {
    require(state.name != param_row().name && state.name != master_row().name,
            "state '{}' of optimizer '{}' must have another name, which no bucket has yet",
            state.name, type);
    require(!state.canonical() || state.forgotten == StateRow::Forgotten::never,
            "state '{}' of optimizer '{}' is canonical, so it must never be forgotten", state.name,
            type);
  }
  for (const StateRow& state : row.joint) {
    require(state.saved == StateRow::Saved::own || state.saved == StateRow::Saved::common,
            "joint state '{}' of optimizer '{}' must be saved as own or common", state.name, type);
  }
}

}  // namespace

std::vector<std::string> Optimizer::state_names() const {
  std::vector<std::string> names;
  for (const StateRow& row : states) {
    if (row.canonical()) names.push_back(row.name);
  }
  return names;
}

const char* form_name(StepForm form) {
  constexpr const char* names[] = {"step", "gradients", "freezing", "compressed", "local"};
  return names[static_cast<size_t>(form)];
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

void add_optimizer(Optimizer row, OptimizerType type) {
  require(row.types == std::vector{type.name},
          "an optimizer is chosen by its type '{}', got the row of {}", type.name,
          fmt::join(row.types, " and "));
  check_states(row);
  add_optimizer_type(std::move(type));
  optimizers().push_back(std::move(row));
}

const Optimizer& optimizer_of(const OptimizerConfig& config) {
  for (const Optimizer& row : optimizers()) {
    if (!contains(row.types, config.type)) continue;
    return row.by_callback ? with_states(row, config.own_states) : row;
  }
  raise(DS_ERROR_CONFIG, "{}: \"{}\" is unknown", KeyName("optimizer.type"), config.type);
}

}  // namespace ds
