// The values that masters and optimizer states must have, from exact sums of gradients.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/device/scalars.h"
#include "support/bounded.h"

namespace ds::test {

// A model of masters and optimizer states, computed in double from docs/reference/ops.md without
// code of src. Each Bounded value says how far a result in f32 may be off.
class ExpectedState {
 public:
  // initial: the values of each parameter.
  ExpectedState(const OptimizerConfig& optimizer, const std::vector<std::vector<float>>& initial);

  // Applies one optimizer step. `sums` are gradients summed over `leaves` leaves. Parameters in
  // `left_out` do not change.
  void update(const std::vector<std::vector<double>>& sums, int64_t leaves,
              const std::vector<char>& left_out);
  // Makes later updates of the parameter use these values instead of the optimizer's.
  void set_group(size_t param, const GroupScalars& group) { groups_[param] = group; }
  void set(size_t param, const std::string& kind, const std::vector<float>& values);
  const std::vector<Bounded>& at(size_t param, const std::string& kind) const;
  // Returns "master", then the names of the optimizer's states.
  const std::vector<std::string>& kinds() const { return kinds_; }

 private:
  void adam(size_t param, const std::vector<double>& sums, Bounded scale);
  void lion(size_t param, const std::vector<double>& sums, Bounded scale);
  void adagrad(size_t param, const std::vector<double>& sums, Bounded scale);
  void sgd(size_t param, const std::vector<double>& sums, Bounded scale);
  void callback(size_t param, const std::vector<double>& sums, Bounded scale);
  size_t index(const std::string& kind) const;

  OptimizerConfig optimizer_;
  std::vector<std::string> kinds_;
  // Values by [kind][parameter][element].
  std::vector<std::vector<std::vector<Bounded>>> values_;
  // One entry for each parameter: its settings, and its number of updates.
  std::vector<GroupScalars> groups_;
  std::vector<int64_t> updates_;
};

}  // namespace ds::test
