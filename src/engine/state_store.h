#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/state_access.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "engine/own_states.h"
#include "engine/runtime.h"
#include "engine/state_values.h"
#include "engine/step_control.h"
#include "exec/executor.h"
#include "zero/zero_plan.h"

namespace ds {

// The tensors of an engine by parameter and kind: whole tensors, read and written together with all
// ranks, and the elements that this rank holds. Kinds are "param" (the compute copy), the names of
// state_kinds(), and "grad", the mean gradient of the last step before clipping. Only one thread at
// a time may use it; every function marked collective is called by all ranks in the same order.
class StateStore final : public StateAccess {
 public:
  // The services that the store needs from its engine.
  class Owner {
   public:
    // Whether none, some or all micro-steps of the current step have contributed their gradients.
    enum class Gradients { none, some, all };
    virtual ~Owner() = default;
    virtual Gradients gradients() const = 0;
    // Returns whether the gradients of the current step or, between steps, of the last step are
    // sums over this rank's leaves only, and not over the leaves of all ranks.
    virtual bool own_gradients() const { return false; }
    // Throws DS_ERROR_STATE inside a step, naming the call.
    virtual void require_idle(const char* call) = 0;
    // Called before parameters or states change between steps. Throws as require_idle() does, and
    // also while a delegate host leases a parameter.
    virtual void require_unleased(const char* call) { require_idle(call); }
    // Like require_unleased(), for a collective call. Such a call proves that the calls of a
    // delegate host so far were an evaluation.
    virtual void begin_change(const char* call) { require_unleased(call); }
    // Throws DS_ERROR_STATE unless the plan is compiled and its memory is allocated.
    virtual void require_started() const {}
    // Returns the executor of the program that computes parameters from masters.
    virtual Executor& refresh() = 0;
    // Returns the text of the model that the numerics key hashes; it does not depend on the layout.
    virtual std::string model_text() const = 0;
  };
  // Whether the engine keeps masters and states of the optimizer, or only weights.
  enum class Keeps { training, weights };

  StateStore(Runtime& runtime, StepControl& control, Owner& owner, const ZeroPlan& zero,
             Keeps keeps);

  // Adds a parameter. `slice` says which elements of the whole tensor this rank's group holds.
  void add_param(std::string name, ParamSlice slice);
  void add_params(const Graph& graph);
  // Throws DS_ERROR_INVALID_ARGUMENT for an unknown parameter.
  void check_param(ParamId param) const;
  // Returns whether the engine keeps states of an optimizer.
  bool trains() const { return state_kinds_.size() > 1; }

  // Collective: read and write whole tensors as f32. Writing "param" writes the master; "grad" can
  // be written only between the last backward of a step and its update.
  std::vector<float> read_tensor(ParamId param, const std::string& kind);
  void write_tensor(ParamId param, const std::string& kind, std::span<const float> values);

  // Returns the range of the parameter whose states this rank updates, as (first, count); count may
  // be 0. Does not communicate, but a delegate engine must have started. Throws
  // DS_ERROR_UNSUPPORTED if the slice has these elements in several ranges of the whole tensor;
  // local_blocks() lists all ranges, in the order of read_local().
  std::pair<int64_t, int64_t> local_range(ParamId param) const;
  std::vector<SliceBlock> local_blocks(ParamId param) const;
  int64_t local_numel(ParamId param) const { return own_range(param).second; }
  // Read and write the elements of local_blocks() without communication. After a write of masters,
  // or of a momentum that every rank keeps whole, refresh_params() must be called, even if this
  // rank wrote 0 elements. Until then, steps, evaluation, inference and reads of "param" throw
  // DS_ERROR_STATE.
  std::vector<float> read_local(ParamId param, const std::string& kind);
  void write_local(ParamId param, const std::string& kind, std::span<const float> values);
  // Collective: computes the compute copies from the masters again.
  void refresh_params();

  // Returns the bytes of this rank's state by tier and kind: "param", those of state_kinds(),
  // "grad", "error" (of quantization and signs), "own_steps", "coefficients". A buffer is counted
  // once; one that holds a parameter and its master counts as "param".
  std::map<std::pair<Tier, std::string>, int64_t> state_bytes() const;

  // The functions from here on are for other parts of the engine.
  Owner& owner() const { return owner_; }
  const ZeroPlan& zero() const { return zero_; }
  BucketId bucket_of(ParamId param) const { return zero_.layout.bucket_of[param]; }
  // Returns a number that grows with every change of parameters. Values computed at an older
  // version are stale.
  int64_t version() const { return version_; }
  void changed() { ++version_; }
  // Throws DS_ERROR_STATE after a local write, until refresh_params() has been called.
  void require_refreshed() const;
  // Collective: runs the program `refresh`, which computes parameters from masters.
  void renew_params();
  StateValues& values() { return values_; }
  OwnStates& own_states() { return own_; }
  // Collective: sets masters from EngineOptions::initial and computes parameters from them.
  void take_initial_values();
  // Returns and clears three facts about the time since the last call: whether write_state() has
  // overwritten a state, whether it has dropped non-zero values of a state that a parameter does
  // not have, and whether a caller has written a parameter that has never been trained.
  struct Writes {
    bool overwritten = false, dropped = false, untrained = false;
  };
  Writes take_writes() { return std::exchange(writes_, {}); }

  // StateAccess
  Communicator& comm() override { return runtime_.comm(); }
  const Layout& layout() const override { return zero_.layout; }
  const IdVector<ParamId, std::string>& param_names() const override { return names_; }
  const IdVector<ParamId, std::vector<int64_t>>& param_shapes() const override { return shapes_; }
  const ParamSlice& slice(ParamId param) const override { return slices_[param]; }
  bool writes(ParamId param) const override;
  const std::vector<std::string>& state_kinds() const override { return state_kinds_; }
  int64_t first(BucketId bucket) const override { return zero_.part_first(bucket); }
  int64_t held(BucketId bucket) const override { return zero_.part_numel(bucket); }
  int64_t own_first(BucketId bucket) const override {
    return zero_.part_first(bucket, zero_.levels(bucket).depth());
  }
  void read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                  float* out) override;
  void write_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                   const float* in) override;
  OwnStateAccess* own() override { return trains() ? &own_ : nullptr; }
  // Returns the bytes of a copy of this rank's part of a checkpoint, in f32.
  int64_t copy_bytes();

 private:
  // The elements of a kind that a rank holds: its part of a cut of the bucket over `cut` levels.
  // Reads multiply them by `scale`.
  struct Held {
    // Without a buffer, all elements are zero.
    StateRef ref;
    int cut = 0;
    float scale = 1;
    // Whether a read gathers the parts even if cut is 0, because local writes change only this
    // rank's part.
    bool own = false;
  };
  Held held_of(ParamId param, const std::string& kind);
  std::vector<float> gather_held(ParamId param, const Held& held);
  std::vector<float> assemble(ParamId param, const std::vector<float>& local);
  // Like local_range(), but counted in the local tensor.
  std::pair<int64_t, int64_t> own_range(ParamId param) const;
  StateRef state_ref(BucketId bucket, StateKind kind) const;
  // Returns whether the parameter has this state. A parameter that was never trained has only its
  // master, which equals its compute copy.
  bool holds(ParamId param, StateKind kind) const;
  // Returns whether the parameter has been trained. If not, its master has no more precision than
  // its compute copy.
  bool begun(ParamId param) const { return !trains() || zero_.trained.begun[param] != 0; }
  // Returns the position of a kind in state_kinds(), or -1.
  int state_index(const std::string& kind) const;
  // Throws unless the call may write. `local` says that the call is not collective, so it must not
  // change the state of the host's order, which all ranks share.
  void check_writable(const char* call, ParamId param, const std::string& kind, size_t values,
                      int64_t wanted, bool local);
  void write_part(ParamId param, const std::string& kind, int64_t begin, int64_t end,
                  const float* values);
  void grad_written(ParamId param, std::span<const float> values);

  Runtime& runtime_;
  StepControl& control_;
  Owner& owner_;
  const ZeroPlan& zero_;
  IdVector<ParamId, std::string> names_;
  StateValues values_;
  OwnStates own_;
  // Shapes of whole tensors.
  IdVector<ParamId, std::vector<int64_t>> shapes_;
  IdVector<ParamId, ParamSlice> slices_;
  std::vector<std::string> state_kinds_;
  // The name of the parameter that write_local() wrote last and that must be refreshed, or "".
  std::string unrefreshed_;
  int64_t version_ = 0;
  Writes writes_;
};

}  // namespace ds
