#include "optim/optimizer.h"

#include <algorithm>
#include <cstdint>

#include "core/base/error.h"

namespace ds {
namespace {

Attrs adam_attrs(const OptimizerConfig& o) { return {{"l2", static_cast<int64_t>(o.adam_w_mode ? 0 : 1)}}; }

// As DeepSpeed has it: neither corrected nor with decay in the gradient.
Attrs onebit_adam_attrs(const OptimizerConfig&) { return {{"l2", int64_t{0}}, {"bias_correction", int64_t{0}}}; }

StepForm onebit_form(const OptimizerConfig& o, int64_t updates) {
  return updates < o.freeze_step ? StepForm::reduced : StepForm::compressed;
}

Attrs sgd_attrs(const OptimizerConfig& o) { return {{"nesterov", static_cast<int64_t>(o.nesterov ? 1 : 0)}}; }

}  // namespace

const std::vector<Optimizer>& optimizers() {
  static const std::vector<Optimizer> rows{
      {{"Adam", "AdamW"}, Op::adamw, {"exp_avg", "exp_avg_sq"}, adam_attrs},
      {{"SGD"}, Op::sgd, {"momentum_buffer"}, sgd_attrs},
      {{"OneBitAdam"}, Op::adamw, {"exp_avg", "exp_avg_sq"}, onebit_adam_attrs, onebit_form},
  };
  return rows;
}

const Optimizer& optimizer_of(const OptimizerConfig& config) {
  for (const Optimizer& row : optimizers()) {
    if (std::find(row.types.begin(), row.types.end(), config.type) != row.types.end()) return row;
  }
  raise(DS_ERROR_CONFIG, "{}: \"{}\" is unknown", KeyName("optimizer.type"), config.type);
}

}  // namespace ds
