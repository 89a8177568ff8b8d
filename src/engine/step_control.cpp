#include "engine/step_control.h"

#include <algorithm>

namespace ds {

StepControl::StepControl(const Config& config, int world) : config_(config) {
  scalars_.seed = config.run.seed;
  scalars_.leaves = config.accumulation * world;
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

const StepResult& StepControl::finish(std::string reason) {
  ++scalars_.step;
  if (!skips()) ++scalars_.updates;
  last_ = {scalars_.step, scalars_.updates, scalars_.loss,    scalars_.grad_norm,
           scalars_.lr,   skips(),          std::move(reason)};
  return last_;
}

}  // namespace ds
