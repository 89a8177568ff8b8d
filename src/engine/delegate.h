#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile/delegate.h"
#include "compile/plan.h"
#include "core/device/device.h"
#include "core/device/stream.h"
#include "core/device/view.h"
#include "engine/body.h"
#include "engine/host_order.h"
#include "engine/leases.h"
#include "engine/micro_steps.h"
#include "engine/observer.h"
#include "engine/runtime.h"
#include "engine/state_store.h"
#include "engine/step_control.h"
#include "engine/trained_set.h"
#include "exec/executor.h"

namespace ds {

// Delegate mode: a host framework keeps forward and backward. Its calls in the first step are
// recorded; from the second step on the recorded step is one program, so that gathers are
// prefetched in the host's order. If the host departs from this order, it is served call by call
// until the end of that step, and the step is recorded again.
//
// A step begins with its first gradient or backward. Leases before it may be its forward pass or an
// evaluation: both follow the record as long as they can, and neither changes anything. When all
// leases have ended, the calls so far turn out to be an evaluation as soon as the host begins its
// recorded order again, or changes parameters or states (docs/adr/0018).
//
// All calls except add_param and view are collective: the same calls in the same order on all
// ranks.
class DelegateEngine final : public EngineBody {
 public:
  DelegateEngine(Config config, Communicator& comm, EngineOptions options);

  // Adds a parameter; allowed only before start(). Initial values come from EngineOptions::initial.
  // The host computes with it in the compute type or, if it wants to, in f32.
  ParamId add_param(const std::string& name, const std::vector<int64_t>& shape,
                    DType dtype = DS_DTYPE_NONE);
  // Compiles the plan and allocates memory. Call it once, before the calls below. A start that is
  // refused allocates nothing, but if the initial values are refused, the engine is unusable.
  void start();
  // Turns evaluation on or off; allowed between steps and without leases. During evaluation no call
  // belongs to a step: gathers follow the record where they can but are not recorded, and gradients
  // are refused.
  void evaluate(bool on);
  // Begin and end leases. Leases are counted per parameter, and all must end before step(). With a
  // stream, a lease ends when the stream has finished the work that it has at the time of the call.
  void gather(std::span<const ParamId> params);
  void release(std::span<const ParamId> params, const StreamRef& stream = nullptr);
  // A tensor that a host sees. It stays readable as long as `owner` lives, even after its lease has
  // ended.
  struct Seen {
    TensorView view;
    std::shared_ptr<void> owner;
    // Host code must not use the address if this is true.
    bool on_device = false;
  };
  // Returns a leased parameter in the compute type, valid until its last release. The view is the
  // device's own memory if it is for work of a stream or host code may use that memory. Otherwise
  // it is a copy, made at the first such view of a lease. A parameter that is whole on every rank
  // needs no lease: a view of the device's own memory then stays valid as long as the engine.
  Seen view(ParamId param, const StreamRef& stream = nullptr);
  // Returns the place for this rank's gradient of this micro-step, in the compute type. If
  // grad_ready() is given this address, nothing is copied. If the host cannot use device memory,
  // the place is in host memory and the gradient is copied, unless it is for work of a stream. The
  // place belongs to the host, and to the stream, until grad_ready() of the parameter or the end of
  // the micro-step.
  Seen grad_view(ParamId param, const StreamRef& stream = nullptr);
  using Gradient = HostGradient;
  // Accepts the gradient of a parameter, once per micro-step.
  void grad_ready(ParamId param, const Gradient& grad);
  // Ends a micro-step (ds_backward). Gradients that were not handed over count as zero.
  void end_micro_step();
  // Runs the update. A step is skipped if its gradients have NaN or infinity, or if all its weights
  // are 0: the result says so, and only the counter of steps changes.
  StepResult step();

  // Forgets the gradients and micro-steps of the current step; allowed without leases.
  void drop_step();

  // Sets a number of MicroSteps or, until step(), of the update. Not collective, but all ranks must
  // make the same call, except for a weight.
  void set(std::string_view name, double value) override;
  const MicroSteps& micro_steps() const { return micros_; }
  // Returns the recorded step as text, or the update program while nothing is recorded.
  std::string print_plan() const override;
  bool recorded() const { return order_.recorded(); }
  // Returns whether all calls of this step so far are those of the recorded order.
  bool following() const { return order_.following(); }
  // Sets the observer that sees each instruction of the steps that follow the record, or none if it
  // is null. Call it on every rank or on none, and not in the middle of a step.
  void observe(StepObserver* observer) { observer_ = observer; }

 private:
  // StateStore::Owner
  Gradients gradients() const override;
  void require_idle(const char* call) override;
  void require_training(const char* call) const;
  // Checks a call that passes a gradient or asks where to write it.
  void check_gradient(ParamId param, const char* call) const;
  void require_released(const char* call) const;
  void require_unleased(const char* call) override;
  void begin_change(const char* call) override;
  std::string bad_tensor();
  void require_started() const override;
  // Fills the states with zeros and refreshes the parameters from them.
  void make_states() override;
  Executor& refresh() override;
  std::string model_text() const override;

  int64_t unbacked_bytes() const override { return leases_.unbacked_bytes(); }
  // Runs the recorded program up to `end`, the position of `event`, and performs the host's part
  // there.
  void run_recorded(Position end, EventId event = none);
  void host_call(EventId event);
  void recompile(const TrainedParams& trained) override;
  void plan_ends() override;
  void plan_replaced() override { leases_.begin_micro_step(); }
  // Ends the programs that were added to the plan late: the recorded step, and the fragments placed
  // after it.
  void forget_late_programs();
  void begin_step();
  // Forgets the calls so far: the next one is the first of a step or of an evaluation.
  void forget_calls();
  // Returns the transient bytes of the recorded program, in whole blocks.
  int64_t program_bytes(Tier tier) const;
  // Returns true if the recorded program expected this event and has run up to it.
  bool follow(HostEvent event);
  void leave_record();
  // Copies the gradients of this micro-step that the recorded program had received but not reduced
  // when it was left at `done`.
  void take_gradients(Position done);
  void finish_calls();
  void record(const HostOrder::Events& calls, std::string hash);
  void compare_orders(const HostOrder::Events& calls, const std::string& hash);
  // The functions below serve a host call by call.
  void lease(ParamId param);
  void end_lease(ParamId param);
  void reduce_ready(bool all);
  // Runs the program that gathers a bucket, or reduces it in a micro-step.
  void run_fragment(const ProgramKey& key);

  IdVector<ParamId, ParamSpec> specs_;
  IdVector<ParamId, Shape> shapes_;
  bool started_ = false, evaluating_ = false;
  // Whether the warning that the record does not fit has been logged.
  bool told_ = false;

  // The host's order. Its record belongs to the program plan_.step().
  HostOrder order_;
  // Whether the current step has begun, with a call of grad_view(), grad_ready() or
  // end_micro_step().
  bool begun_ = false;

  MicroSteps micros_;
  Leases leases_;
  // The number of leases of all parameters together.
  int64_t leased_ = 0;
  // The gradient of the current call.
  Gradient pending_;
  StepObserver* observer_ = nullptr;
};

}  // namespace ds
