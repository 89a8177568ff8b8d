#include "engine/step_control.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/suggest.h"

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

void StepControl::set(std::string_view name, double value) {
  static const std::vector<std::string> names{"lr"};
  if (name != names[0]) {
    raise(DS_ERROR_NOT_FOUND, "name must be {}, got '{}'{}", fmt::join(names, ", "), name,
          did_you_mean(name, names));
  }
  if (std::isnan(value)) {
    lr_.reset();
    return;
  }
  require(value >= 0 && std::isfinite(value), "lr must be a finite number of at least 0, or NaN, got {}",
          value);
  lr_ = value;
}

void StepControl::begin_step() {
  scalars_.train = 1;
  scalars_.skip = 0;
  bad_gradients_.clear();
  scalars_.lr = lr_ ? *lr_ : learning_rate(config_, scalars_.updates);
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
