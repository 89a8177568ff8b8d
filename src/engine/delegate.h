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
#include "compile/memory_plan.h"
#include "core/device/device.h"
#include "core/device/stream.h"
#include "core/device/view.h"
#include "engine/checkpoints.h"
#include "engine/observer.h"
#include "engine/runtime.h"
#include "engine/state_store.h"
#include "engine/step_control.h"
#include "engine/trained_set.h"
#include "exec/executor.h"

namespace ds {

// Delegate mode: a host framework keeps forward and backward. Its calls of the first step are
// recorded; from the second step on the recorded step is one program, so that gathers are
// prefetched along the host's order. A host that leaves its order is served call by call until the
// end of that step, and recorded again.
//
// A step begins with its first gradient or backward. Leases before it may be its forward pass or an
// evaluation: both follow the record as long as they can, and neither changes anything. When all
// leases have ended, what the host did is evaluation as soon as it begins its recorded order again,
// or changes parameters or states (docs/adr/0018).
//
// All calls but add_param and view are collective: the same calls in the same order on all ranks.
class DelegateEngine final : private StateStore::Owner {
 public:
  DelegateEngine(Config config, Communicator& comm, EngineOptions options);

  // Before start(). Values: EngineOptions::initial.
  ParamId add_param(const std::string& name, const std::vector<int64_t>& shape);
  // Compiles and takes memory; once, before the calls below. A start that is refused takes nothing;
  // one whose values are, leaves the engine unusable.
  void start();
  // Between steps, without leases. While it evaluates, nothing that the host does belongs to a
  // step: its gathers follow the record where they can and are forgotten, and gradients are
  // refused.
  void evaluate(bool on);
  // Leases are counted per parameter; all end before step(). With a stream, a lease ends when the
  // stream has done what it has now.
  void gather(std::span<const ParamId> params);
  void release(std::span<const ParamId> params, const StreamRef& stream = nullptr);
  // What a host sees: it stays readable for as long as `owner` lives, also when its lease has
  // ended.
  struct Seen {
    TensorView view;
    std::shared_ptr<void> owner;
    bool on_device = false;  // else host code may use the address
  };
  // A leased parameter in the compute type; valid until its last release. It is the device's own,
  // for work of a stream or where host code may use that, else a copy, made at the first such view
  // of a lease.
  Seen view(ParamId param, const StreamRef& stream = nullptr);
  // Where this rank's gradient in this micro-step goes, in the compute type: what is there when
  // grad_ready() is given this address is not copied. Where memory of the device is not the host's
  // it lies beside it and is copied, unless it is for work of a stream. The place is the host's,
  // and the stream's, until grad_ready() of the parameter or the end of the micro-step.
  Seen grad_view(ParamId param, const StreamRef& stream = nullptr);
  // A gradient of this rank in this micro-step: in the compute type, or in memory of the host in
  // f32. With a stream, it is read in its order.
  struct Gradient {
    const void* data = nullptr;
    DType dtype = DS_DTYPE_NONE;
    int64_t numel = 0;
    bool on_device = false;
    StreamRef stream = nullptr;
  };
  // Once per parameter and micro-step.
  void grad_ready(ParamId param, const Gradient& grad);
  // By tokens, in each micro-step and on each rank: what its gradients, which are handed over as
  // they are to be added up, count for. The step divides their sum by the sum of all weights. Not
  // collective.
  void set_weight(double weight);
  std::optional<double> weight() const { return weight_; }  // none: not said yet
  void end_micro_step();
  // A step with NaN or infinity in its gradients is skipped and says so: nothing but the counter of
  // iterations has changed then.
  StepResult step();

  Runtime& runtime() { return runtime_; }
  const Runtime& runtime() const { return runtime_; }
  const StepControl& control() const { return control_; }
  // StepControl::set, on all ranks alike.
  void set(std::string_view name, double value) {
    runtime_.guarded([] {});  // a poisoned engine makes no step
    if (name == kWeightName) return set_weight(value);
    require_idle("ds_engine_set");
    control_.set(name, value);
  }
  // The name of weight() among the numbers of an engine.
  static constexpr std::string_view kWeightName = "micro_weight";
  StateStore& store() { return store_; }
  const StateStore& store() const { return store_; }
  Checkpoints& checkpoints() { return checkpoints_; }
  TrainedSet& trained() { return trained_; }
  // The recorded step, or the update alone while nothing is recorded; and bytes per tier.
  std::string print_plan() const;
  std::vector<TierMemory> memory() const;
  bool recorded() const { return step_ != nullptr; }
  const Program* recorded_step() const { return record_ ? &record_->program : nullptr; }
  bool following() const { return following_; }  // the recorded order, so far
  // Sees each instruction of steps that follow the record, from here on; null: nobody does. On
  // every rank or on none, and not in the middle of a step.
  void observe(StepObserver* observer) { observer_ = observer; }

 private:
  // StateStore::Owner
  Gradients gradients() const override;
  void require_idle(const char* call) override;
  void require_training(const char* call) const;
  // Before a gradient, or a place for one.
  void check_gradient(ParamId param, const char* call) const;
  TensorView shaped(ParamId param) const;
  void require_unleased(const char* call) override;
  void begin_change(const char* call) override;
  std::string bad_tensor();
  void require_started() const override;
  void make_states();  // zeros, and parameters of them
  Executor& refresh() override;
  std::string model_text() const override;

  const Config& config() const { return runtime_.config(); }
  const Machine& machine() const { return runtime_.options().machine; }
  int64_t unbacked_bytes() const;
  std::unique_ptr<Executor> executor(const Program& program);
  // Runs the recorded program up to `end`, which is that of `event`, and does there what the host
  // does.
  void run_recorded(Position end, EventId event = none);
  void host_call(EventId event);
  void recompile(const TrainedParams& trained);
  void begin_step();
  MemoryPlan fragment_memory(const DelegatePlan& plan) const;
  void end_all_executors();
  void make_all_executors();  // of refresh, update and the recorded step, if there is one
  void forget_record();
  // The next call is the first of a step, or of an evaluation.
  void forget_calls();
  void begin_micro_step();
  // Trained parameters of a bucket.
  int32_t trained(BucketId bucket) const;
  int64_t program_bytes(
      int tier) const;  // transient bytes of the recorded program, in whole blocks
  // True when the recorded program expects this event and has run up to it.
  bool follow(HostEvent event);
  bool begins_record(const HostEvent& event) const;
  void leave_record();
  // What step_ had of this micro-step's gradients when it was left at `done`.
  void take_gradients(Position done);
  void finish_calls();
  // Of the running micro-step; of the last one, all ranks learn the weights of the step.
  void take_weight();
  void record(IdVector<EventId, HostEvent> order, std::string hash);
  IdVector<EventId, HostEvent> training_calls() const;
  void compare_orders(const std::string& mine);
  // Call by call.
  void lease(ParamId param);
  void end_lease(ParamId param);
  void reduce_ready(bool all);
  void clear_grad(ParamId param);
  // The gradient of the call that is being made, into a buffer from a byte on.
  void put_pending(const Buffer& to, int64_t begin, int64_t numel);

  // A parameter in memory of the device, from a byte of a buffer on.
  struct LeasePlace {
    const Buffer* buffer = nullptr;  // null: not leased
    int64_t begin = 0;
  };
  LeasePlace own_place(ParamId param) const;  // of a call-by-call step

  struct Fragment {
    std::unique_ptr<Program> program;
    std::unique_ptr<Executor> executor;
  };
  Fragment& fragment(BucketId bucket, MicroId micro);  // none: gather

  IdVector<ParamId, ParamSpec> specs_;
  IdVector<ParamId, Shape> shapes_;
  bool started_ = false, evaluating_ = false;
  DelegatePlan plan_;
  Runtime runtime_;
  StepControl control_;
  StateStore store_;
  TrainedSet trained_;
  Checkpoints checkpoints_;
  std::unique_ptr<Executor> refresh_, update_;
  std::map<std::pair<BucketId, MicroId>, Fragment> fragments_;
  bool told_ = false;                   // that the record does not fit
  int64_t fragment_transient_[3] = {};  // most that any fragment needs, by tier

  std::unique_ptr<RecordedStep> record_;  // null: nothing recorded
  std::unique_ptr<Executor> step_;        // of its program
  std::string record_hash_;
  bool following_ = false;               // every call since events_ began is that of record_
  IdVector<EventId, HostEvent> events_;  // of this step, and of evaluation before it
  bool whole_ = true;                    // none of them was dropped
  bool begun_ = false;                   // the step: it has a gradient or a backward

  IdVector<ParamId, int32_t> leases_;          // how many each has
  int64_t leased_ = 0;                         // their sum
  IdVector<BucketId, int32_t> bucket_leases_;  // of a partitioned one: parameters whose lease lies
                                               // at their own_place
  IdVector<ParamId, LeasePlace> where_;  // of a leased one
  IdVector<ParamId, std::shared_ptr<Arena>>
      copies_;                        // of a leased one that was viewed where it takes a copy
  IdVector<ParamId, char> has_grad_;  // in this micro-step
  IdVector<ParamId, LeasePlace> grad_where_;  // of a viewed one: where its gradient goes
  IdVector<ParamId, std::shared_ptr<Arena>>
      grad_room_;                              // of a viewed one, beside memory of the device
  IdVector<ParamId, StreamRef> grad_streams_;  // of a viewed one, that may write to its place
  IdVector<BucketId, int32_t> missing_;        // parameters without gradient in this micro-step
  IdVector<BucketId, char> reduced_;           // by the recorded program, in this micro-step
  BucketId next_reduce_;                       // buckets above it are reduced in this micro-step
  int32_t micro_ = 0;
  std::optional<double> weight_;  // of this micro-step
  std::vector<double> weights_;   // of those before it
  Gradient pending_;              // of the call that is being made
  StepObserver* observer_ = nullptr;
};

}  // namespace ds
