#include "engine/step_control.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/error.h"

namespace ds {

StepControl::StepControl(const Config& config, int world)
    : config_(config), world_(world), leaves_(config.accumulation * world) {
  scalars_.seed = config.run.seed;
}

void StepControl::resume(int64_t steps, int64_t updates, uint64_t seed) {
  scalars_.step = steps;
  scalars_.updates = updates;
  scalars_.seed = seed;
}

void StepControl::begin_step() {
  scalars_.train = 1;
  scalars_.skip = 0;
  bad_gradients_.clear();
  scalars_.lr = learning_rate(config_, scalars_.updates);
}

void StepControl::gradient_written(const std::string& param, bool finite) {
  if (finite) {
    bad_gradients_.erase(param);
  } else {
    bad_gradients_.insert(param);
  }
}

bool StepControl::performs(const Instr& instr) {
  return instr.def->op == Op::clip || instr.def->op == Op::losses;
}

void StepControl::perform(const Instr& instr, std::span<const TensorView> views) {
  instr.def->op == Op::clip ? clip(instr, views[0]) : add_losses(views[0]);
}

// Leaves in the order of leaf numbers: micro_step * world + rank.
void StepControl::add_losses(const TensorView& losses) {
  const float* all = losses.as<float>();
  int64_t micros = config_.accumulation;
  double sum = 0;
  leaves_ = 0;
  for (int64_t m = 0; m < micros; ++m) {
    for (int64_t r = 0; r < world_; ++r) {
      float loss = all[r * micros + m];
      if (std::bit_cast<uint32_t>(loss) == kNoLeaf) continue;
      sum += loss;
      ++leaves_;
    }
  }
  loss_ = sum / static_cast<double>(leaves_);  // of no leaf: NaN, which skips the update
}

// Norm of the mean gradient: granule partials added in the order of parameters, in f64.
void StepControl::clip(const Instr& instr, const TensorView& norms) {
  const double* partial = norms.as<double>();
  double sum = 0;
  for (int64_t at : norm_order_) sum += partial[at];
  double leaves = static_cast<double>(std::max<int64_t>(leaves_, 1));
  double norm = std::sqrt(sum) / leaves;
  double max_norm = instr.attrs.real("max_norm");
  double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  scalars_.grad_norm = norm;
  scalars_.grad_scale = coefficient / leaves;
  scalars_.skip = std::isfinite(norm) && std::isfinite(loss_) ? 0 : 1;
}

const StepResult& StepControl::finish(std::string reason) {
  ++scalars_.step;
  if (!skips()) ++scalars_.updates;
  last_ = {scalars_.step, scalars_.updates, loss_, scalars_.grad_norm, scalars_.lr,
           skips(),       std::move(reason)};
  return last_;
}

}  // namespace ds
