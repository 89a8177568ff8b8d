#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/state_access.h"
#include "core/base/ids.h"
#include "core/program/state.h"
#include "engine/runtime.h"
#include "engine/state_values.h"
#include "engine/step_control.h"
#include "zero/zero_plan.h"

namespace ds {

// States that each rank saves for itself: errors of compression and quantization, steps that ranks
// have not yet agreed on and their rates, and the coefficients of 1-bit LAMB, which are equal on
// all ranks. The rows of states (core/program/state.h) say which states these are.
class OwnStates final : public OwnStateAccess {
 public:
  // All arguments are borrowed.
  OwnStates(Runtime& runtime, StepControl& control, const ZeroPlan& zero,
            const IdVector<ParamId, std::string>& names, StateValues& values)
      : runtime_(runtime), control_(control), zero_(zero), names_(names), values_(values) {}

  std::vector<OwnState> states() override;
  void read(size_t index, int64_t begin, int64_t count, float* out) override;
  void write(size_t index, int64_t begin, int64_t count, const float* in) override;
  void forget() override;
  // Forgets the states whose layout changes when other tensors are trained or their groups change.
  void forget_rearranged();
  // Sets the errors of a parameter's gradients to zero, when ranks stop sending its gradients.
  void forget_errors(ParamId param);

 private:
  // A state and its place. If `ref` has no buffer, the state is the rate sums of StepControl.
  struct Own {
    OwnState state;
    StateRef ref;
  };
  std::vector<Own> find() const;
  void forget_all(StateRow::Forgotten least);

  Runtime& runtime_;
  StepControl& control_;
  const ZeroPlan& zero_;
  const IdVector<ParamId, std::string>& names_;
  StateValues& values_;
  // The result of the last states(), which the indices of read() and write() refer to.
  std::vector<Own> found_;
};

}  // namespace ds
