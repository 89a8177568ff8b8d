// What masters and optimizer states must be, from exact sums of gradients.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/device/scalars.h"
#include "support/bounded.h"

namespace ds::test {

// Computed in double, by docs/reference/ops.md, without code of src; Bounded says how far f32 may
// be off.
class ExpectedState {
 public:
  // initial: by parameter.
  ExpectedState(const OptimizerConfig& optimizer, const std::vector<std::vector<float>>& initial);

  // One optimizer step: sums are those of the gradients of `leaves` leaves. Frozen parameters stay.
  void update(const std::vector<std::vector<double>>& sums, int64_t leaves,
              const std::vector<char>& frozen);
  // Updates of a parameter from now on have these values in place of the optimizer's.
  void set_group(size_t param, const GroupScalars& group) { groups_[param] = group; }
  void set(size_t param, const std::string& kind, const std::vector<float>& values);
  const std::vector<Bounded>& at(size_t param, const std::string& kind) const;
  const std::vector<std::string>& kinds() const {
    return kinds_;
  }  // "master", then the optimizer's states

 private:
  void adam(size_t param, const std::vector<double>& sums, Bounded scale);
  void lion(size_t param, const std::vector<double>& sums, Bounded scale);
  void adagrad(size_t param, const std::vector<double>& sums, Bounded scale);
  void sgd(size_t param, const std::vector<double>& sums, Bounded scale);
  size_t index(const std::string& kind) const;

  OptimizerConfig optimizer_;
  std::vector<std::string> kinds_;
  std::vector<std::vector<std::vector<Bounded>>> values_;  // by kind, parameter and element
  std::vector<GroupScalars> groups_;                       // of each parameter
  std::vector<int64_t> updates_;                           // of each parameter
};

}  // namespace ds::test
