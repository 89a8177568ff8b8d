#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "compile/pipeline.h"
#include "core/base/trace.h"
#include "engine/arena.h"
#include "engine/decode.h"
#include "engine/overhead.h"
#include "exec/executor.h"

namespace ds {

struct StepResult {
  int64_t step = 0;      // optimizer steps taken so far
  double loss = 0;       // mean of the leaf means over all ranks
  double grad_norm = 0;  // before clipping
  double lr = 0;
};

struct EngineOptions {
  int threads = 1;
  bool trace = false;
  std::optional<uint64_t> chaos_seed;  // run on the chaos device
  Machine machine;
  PlanPrograms programs;  // an InferenceEngine has only programs.decode
  // Tests only: changes the table of kernels; changes the compiled step before it runs; is called before each
  // of its instructions.
  std::function<void(KernelRegistry&)> kernel_filter;
  std::function<void(Program&)> program_filter;
  std::function<void(size_t)> before_instr;
};

// What native and delegate engines share: memory, executors, scalars of the step, state by name, checkpoints.
// One thread at a time. Every call marked collective is made by all ranks in the same order. After a failed
// instruction the engine is poisoned: every later call throws DS_ERROR_POISONED.
class EngineCore : public StateAccess {
 public:
  ~EngineCore() override;

  void check_param(ParamId param) const;  // throws DS_ERROR_INVALID_ARGUMENT
  // Collective: whole tensors by parameter index, f32. kind "param" (compute copy), one of state_kinds(),
  // "grad" (mean gradient of the last step before clipping). A written "param" is its master; "grad" is
  // written between the last backward of a step and its update.
  std::vector<float> read_tensor(ParamId param, const std::string& kind);
  void write_tensor(ParamId param, const std::string& kind, std::span<const float> values);

  // Elements of a parameter of which this rank updates the states, as (first, count); count may be 0. No
  // communication: a delegate engine must have started, by any of its collective calls.
  std::pair<int64_t, int64_t> local_range(ParamId param);
  // The same as above of these elements, without communication. After a write of masters, also of no element,
  // refresh_params() must be called before a step, evaluation, text or whole "param": DS_ERROR_STATE until
  // then.
  std::vector<float> read_local(ParamId param, const std::string& kind);
  void write_local(ParamId param, const std::string& kind, std::span<const float> values);
  void refresh_params();  // collective

  // Collective, between steps: these parameters are trained from the next step on, or no more. Parameters
  // that have optimizer states keep them. One that is trained for the first time starts with zero states.
  // Bias corrections count a parameter's own updates. What a rank is refused, and parameters that differ
  // between ranks, are an error on all before anything changes.
  void freeze(std::span<const int32_t> params, int32_t frozen);
  bool is_frozen(ParamId param) const { return zero().frozen.at(param) != 0; }

  // Collective.
  std::string save(const std::string& folder, const Json& client = {}, const Keep& keep = {});
  // Loads what find_checkpoint(folder) finds on rank 0, or, where the content of that one is damaged, the
  // newest older one, with a warning. A checkpoint that is named itself is loaded or refused.
  CheckpointInfo load(const std::string& folder);
  // Weights of a Hugging Face model folder (checkpoint/weights.h); optimizer states and counters stay.
  void load_weights(const std::string& folder);
  void save_weights(const std::string& folder, const std::string& like = "");

  // Collective: tokens as places [first, first + count) of one text whose places before `first` were fed
  // before; returns the logits behind the last. Arguments as of Decoding::check.
  std::vector<float> decode(std::span<const int32_t> tokens, int64_t first);
  int64_t positions();               // tokens of the longest text that decode takes; 0: none
  int64_t reusable(int64_t length);  // Decoding::reusable

  int64_t steps_taken() const { return scalars_.step; }
  const StepResult& last_step() const { return last_; }
  const Config& config() const { return config_; }
  std::string numerics_key() const;
  Trace* trace() { return trace_.get(); }
  // Bytes taken in a tier; 0 before a delegate engine's first call that needs them.
  int64_t mapped(Tier tier) const { return memory_ ? memory_->mapped(tier) : 0; }
  // Keeps what a view shows mapped: EngineMemory::hold.
  std::shared_ptr<void> hold(const void* view) const { return memory_->hold(view); }
  // Counted traffic by operation: collectives, copies, file bytes.
  std::map<std::string, CommCount> ledger() const;
  // What the communication log has timed, of all groups; none unless comms_logger is on. Collective.
  std::vector<CommTime> comm_times() { return groups_.times(); }
  // Bytes of this rank's state by tier and kind: "param", those of state_kinds(), "grad", "error" (of
  // quantization).
  std::map<std::pair<Tier, std::string>, int64_t> state_bytes() const;

  // The step program as compiled, and bytes per tier.
  virtual std::string print_plan() const = 0;
  virtual std::string report_plan() const = 0;
  // Memory outside the plan; complete once the engine has its programs.
  const Overhead& overhead() const { return overhead_; }

  // StateAccess
  Communicator& comm() override { return comm_; }
  const Layout& layout() const override { return zero().layout; }
  const IdVector<ParamId, std::string>& param_names() const override { return names_; }
  const IdVector<ParamId, std::vector<int64_t>>& param_shapes() const override { return shapes_; }
  const std::vector<std::string>& state_kinds() const override { return state_kinds_; }
  int64_t first(BucketId bucket) const override { return zero().part_first(bucket); }
  int64_t held(BucketId bucket) const override { return zero().part(bucket); }
  int64_t own_first(BucketId bucket) const override {
    return zero().part_first(bucket, zero().levels.depth());
  }
  void read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count, float* out) override;
  void write_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count, const float* in) override;

 protected:
  static constexpr const char* kExecutorsPart = "kernels and launch tables";  // of overhead()
  enum class Keeps { training, weights };
  EngineCore(Config config, Communicator& comm, EngineOptions options, Keeps keeps = Keeps::training);

  // Of the compiled plan: what is persistent, and where (any of its programs has the same offsets).
  virtual const ZeroPlan& zero() const = 0;
  virtual const Program& placed() const = 0;
  virtual const std::string& plan_hash() const = 0;
  virtual std::string model_text() const = 0;       // what the numerics key hashes: equal for every layout
  virtual Executor& refresh() = 0;                  // parameters from masters; run by renew_params
  virtual void require_idle(const char* call) = 0;  // throws DS_ERROR_STATE inside a step
  // Before what changes parameters or states between steps: throws as require_idle, and while a delegate host
  // leases a parameter.
  virtual void require_unleased(const char* call) { require_idle(call); }
  // The same of a collective call: what a delegate host has done was evaluation.
  virtual void begin_change(const char* call) { require_unleased(call); }
  virtual int64_t unbacked_bytes() const {
    return 0;
  }                                          // device memory that the plan has and nobody fills at once
  virtual bool in_accumulation() const = 0;  // has some, but not all gradients of a step
  virtual bool before_update() const = 0;    // has all of them, and the update is to come
  // Compiles anew with other parameters frozen, or later than they were (ZeroPlan::missed), and calls grow().
  virtual void recompile(const IdVector<ParamId, char>& frozen, const IdVector<ParamId, int64_t>& missed) = 0;
  virtual void ensure_started() {}         // compiled and in memory; collective where it has to be done
  virtual void require_started() const {}  // throws DS_ERROR_STATE where that is still to be done

  void add_param(std::string name, std::vector<int64_t> shape);
  void add_params(const Graph& graph);
  // Compares plan hashes over all ranks, then takes the planned memory; a rank that cannot is an error on
  // all. Collective.
  void start(const MemoryPlan& memory);
  // The same for a plan with the same places and more behind them; executors are to be made again.
  void grow(const MemoryPlan& memory);
  // Runs end, which ends all executors: what they took is given back, what they counted stays.
  void end_executors(const std::function<void()>& end);
  // Runs body, which makes executors; what they and their kernels take is measured. Collective.
  void make_executors(const std::function<void()>& body);
  std::unique_ptr<Executor> executor(const Program& program);
  std::unique_ptr<Decoding> make_decoding(const DecodePlan& plan);
  virtual Decoding* decoding() { return nullptr; }  // of an engine that continues text
  EngineMemory& own_memory() {
    settle();
    return *memory_;
  }
  virtual void host_call(const Instr& in, std::span<const TensorView> views);
  std::byte* address(BufferId id) const;  // of a persistent buffer in memory
  void settle() const;                    // ends what the last run left in flight
  BucketId bucket_of(ParamId param) const;
  void require_refreshed() const;  // throws DS_ERROR_STATE after a local edit
  void begin_step();
  StepResult finish_step();
  void guarded(const std::function<void()>& body);
  bool skipped() const { return scalars_.skip != 0; }

  Overhead overhead_;  // first: it measures what the others take
  Config config_;
  Communicator& comm_;
  CommGroups groups_;
  EngineOptions options_;
  StepScalars scalars_;
  double loss_ = 0;
  int64_t leaves_ = 0;  // of the accumulated gradients, known behind the last backward: those that there are
  std::set<std::string> bad_edits_;  // parameters to whose gradients of this step NaN or infinity was written
  StepResult last_;
  IdVector<ParamId, std::string> names_;
  std::vector<Executor*> running_;  // every executor made, for the ledger

 private:
  void compare_plans();
  std::string first_difference();
  void require_usable() const;
  void start_lanes();
  void forget_text();  // parameters have changed
  void renew_params();
  StateRef state_ref(BucketId bucket, StateKind kind) const;
  void compare_frozen(const IdVector<ParamId, char>& mine);  // with the other ranks' wishes. Collective
  void set_trained(const IdVector<ParamId, char>& frozen, IdVector<ParamId, int64_t> updates);
  IdVector<ParamId, int64_t> own_updates() const;
  IdVector<ParamId, int64_t> updates_of(const CheckpointInfo& saved) const;
  std::vector<std::pair<std::string, int64_t>> named_updates() const;
  void begin_states(BucketId bucket);
  std::vector<std::string> frozen_names() const;
  IdVector<ParamId, char> frozen_of(const CheckpointInfo& saved) const;
  std::string frozen_difference(const CheckpointInfo& saved) const;
  bool follows_frozen(const CheckpointInfo& saved) const;
  void follow_frozen(const CheckpointInfo& saved);
  CheckpointInfo load_one(const std::string& path);
  void tell_differences(const std::string& path, const CheckpointInfo& saved);
  void clip(const Instr& in, const TensorView& norms);
  void losses(const TensorView& losses);
  void transfer_state(BufferId id, int64_t element, int64_t count, float* out, const float* in);
  void transfer_file(const Buffer& buffer, int64_t element, int64_t count, float* out, const float* in);
  // What a rank holds of a kind: its part of a cut of the bucket over `cut` levels, to be multiplied by
  // `scale`.
  struct Held {
    StateRef ref;  // without a buffer: zeros
    int cut = 0;
    float scale = 1;
    bool own = false;  // after local writes other ranks' parts are true there alone
  };
  Held held_of(ParamId param, const std::string& kind);
  std::vector<float> gather_held(ParamId param, const Held& held);
  // local: the call of one rank alone, which must not change what all ranks know of the host's order.
  void check_writable(const char* call, ParamId param, const std::string& kind, size_t values, int64_t wanted,
                      bool local);
  void write_part(ParamId param, const std::string& kind, int64_t begin, int64_t end, const float* values);
  void renew_norms(ParamId param);
  void grad_written(ParamId param, std::span<const float> values);
  void overwrite(const std::function<void()>& body);
  int state_index(const std::string& kind) const;  // in state_kinds(); -1: none of them
  void poison(const std::exception& error) { poison_ = error.what(); }

  IdVector<ParamId, std::vector<int64_t>> shapes_;
  IdVector<ParamId, int64_t> updates_;  // own updates, as of the last time that one was set apart
  std::vector<std::string> state_kinds_;
  std::vector<int64_t> norm_order_;
  KernelRegistry kernels_;
  std::unique_ptr<EngineMemory> memory_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Trace> trace_;
  std::unique_ptr<IoLane> read_lane_, write_lane_;
  FileTail tail_;
  std::string poison_;
  std::string unrefreshed_;  // parameter of which this rank alone has written the master; or ""
  std::map<std::string, CommCount> past_copies_;  // of executors that are no more
  bool overwriting_ = false;                      // a load has begun to change states
  bool freeze_called_ = false;                    // ds_engine_freeze has changed what the configuration says
  bool dropped_ = false;                          // it had optimizer states for which there is no place
};

}  // namespace ds
