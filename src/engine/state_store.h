#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/state_access.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/state_codes.h"
#include "engine/runtime.h"
#include "engine/step_control.h"
#include "exec/executor.h"
#include "zero/policy.h"

namespace ds {

// The tensors of an engine by parameter and kind: whole ones together with all ranks, and what this
// rank holds of them. Kinds are "param" (the compute copy), those of state_kinds(), and "grad", the
// mean gradient of the last step before clipping. One thread at a time; every call marked
// collective is made by all ranks in the same order.
class StateStore final : public StateAccess {
 public:
  // What the store asks of the engine that it belongs to.
  class Owner {
   public:
    enum class Gradients { none, some, all };  // of the step that is being made
    virtual ~Owner() = default;
    virtual Gradients gradients() const = 0;
    // Gradients of that step, or else of the last one, are this rank's own: no sum of those of all
    // ranks.
    virtual bool own_gradients() const { return false; }
    // Throws DS_ERROR_STATE inside a step, naming the call.
    virtual void require_idle(const char* call) = 0;
    // Before what changes parameters or states between steps: the same, and while a delegate host
    // leases a parameter.
    virtual void require_unleased(const char* call) { require_idle(call); }
    // The same of a collective call: what a delegate host has done was evaluation.
    virtual void begin_change(const char* call) { require_unleased(call); }
    virtual void require_started() const {}  // compiled and in memory, or throws DS_ERROR_STATE
    virtual Executor& refresh() = 0;         // of the program that makes parameters from masters
    virtual std::string model_text()
        const = 0;  // what the numerics key hashes: equal for every layout
  };
  enum class Keeps { training, weights };

  StateStore(Runtime& runtime, StepControl& control, Owner& owner, const ZeroPlan& zero,
             Keeps keeps);

  // slice: what of the whole tensor this rank holds.
  void add_param(std::string name, ParamSlice slice);
  void add_params(const Graph& graph);
  void check_param(ParamId param) const;                   // throws DS_ERROR_INVALID_ARGUMENT
  bool trains() const { return state_kinds_.size() > 1; }  // has states of an optimizer

  // Collective: whole tensors, f32. A written "param" is its master; "grad" is written between the
  // last backward of a step and its update.
  std::vector<float> read_tensor(ParamId param, const std::string& kind);
  void write_tensor(ParamId param, const std::string& kind, std::span<const float> values);

  // Elements of a parameter of which this rank updates the states, as (first, count); count may be
  // 0. No communication: a delegate engine must have started. Throws DS_ERROR_UNSUPPORTED for a
  // slice of which they are several ranges of the whole tensor; local_blocks() names all of them,
  // in the order of read_local().
  std::pair<int64_t, int64_t> local_range(ParamId param) const;
  std::vector<SliceBlock> local_blocks(ParamId param) const;
  int64_t local_numel(ParamId param) const { return own_range(param).second; }
  // The same as above of these elements, without communication. After a write of masters, also of
  // no element, refresh_params() must be called before a step, evaluation, text or whole "param":
  // DS_ERROR_STATE until then.
  std::vector<float> read_local(ParamId param, const std::string& kind);
  void write_local(ParamId param, const std::string& kind, std::span<const float> values);
  void refresh_params();  // collective

  // Bytes of this rank's state by tier and kind: "param", those of state_kinds(), "grad", "error"
  // (of quantization and signs), "own_steps", "coefficients". A buffer counts once: a parameter
  // that is its own master is a parameter.
  std::map<std::pair<Tier, std::string>, int64_t> state_bytes() const;

  // For the other parts of an engine.
  Owner& owner() const { return owner_; }
  const ZeroPlan& zero() const { return zero_; }
  BucketId bucket_of(ParamId param) const { return zero_.layout.bucket_of[param]; }
  // Grows with every change of parameters: what was computed from older ones is of no use.
  int64_t version() const { return version_; }
  void changed() { ++version_; }
  void require_refreshed() const;  // throws DS_ERROR_STATE after a local edit
  void renew_params();             // from masters. Collective
  // A bucket has room for states for the first time, or a parameter in such a bucket has states:
  // its master is the parameter, the others are zero.
  void begin_states(BucketId bucket);
  void begin_states(ParamId param);
  void forget_errors(ParamId param);  // of its gradients, which are sent no more
  // Masters from EngineOptions::initial, and parameters from these. Collective.
  void take_initial_values();
  // What write_state has done since forget_writes(): overwritten a state; dropped one for which
  // there is no place.
  struct Writes {
    bool overwritten = false, dropped = false;
  };
  const Writes& writes() const { return writes_; }
  void forget_writes() { writes_ = {}; }

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
  // Of gradients that are reduced as codes: errors. Of momentum that is compressed: errors of each
  // tensor that is trained, or of all as one, and coefficients of each parameter. Of steps of this
  // rank alone: their sum, the rates in it, and the momentum.
  std::vector<OwnState> own_states() override;
  void read_own(size_t index, int64_t begin, int64_t count, float* out) override;
  void write_own(size_t index, int64_t begin, int64_t count, const float* in) override;
  void forget_own() override;
  // The same but for errors of gradients that are reduced as codes: of what lies otherwise when
  // other tensors are trained.
  void forget_own_momenta();
  // Bytes of what this rank writes of a checkpoint, f32: a copy of it takes so many.
  int64_t copy_bytes();

 private:
  // What a rank holds of a kind: its part of a cut of the bucket over `cut` levels, to be
  // multiplied by `scale`.
  struct Held {
    StateRef ref;  // without a buffer: zeros
    int cut = 0;
    float scale = 1;
    bool own = false;  // after local writes other ranks' parts are true there alone
  };
  Held held_of(ParamId param, const std::string& kind);
  std::vector<float> gather_held(ParamId param, const Held& held);
  bool is_first(ParamId param, const std::vector<std::string>& apart) const;
  std::vector<float> assemble(ParamId param, const std::vector<float>& local);
  // The same as local_range, of the local tensor.
  std::pair<int64_t, int64_t> own_range(ParamId param) const;
  StateRef state_ref(BucketId bucket, StateKind kind) const;
  // As state_ref: none for what was never trained but its master, which is its compute copy.
  bool holds(ParamId param, StateKind kind) const;
  // Not so: it was never trained, and its master has no more bits than its compute copy.
  bool begun(ParamId param) const { return !trains() || zero_.trained.begun[param] != 0; }
  std::vector<float> rounded(const float* values, int64_t count) const;
  void begin_states(BucketId bucket, int64_t low, int64_t high);
  // Calls f(param, begin, count) for what [begin, begin + count) of a bucket has of each parameter,
  // with the padding behind it.
  template <typename F>
  void for_params(BucketId bucket, int64_t begin, int64_t count, const F& f) const;
  void forget(std::initializer_list<BufferId> buffers);  // zeros, where they exist
  // own_states(), and where they are; nowhere: rates in StepControl.
  struct Own {
    OwnState state;
    StateRef ref;
  };
  std::vector<Own> own() const;
  bool whole_on_all(const std::string& kind) const;
  int state_index(const std::string& kind) const;  // in state_kinds(); -1: none of them
  // local: the call of one rank alone, which must not change what all ranks know of the host's
  // order.
  void check_writable(const char* call, ParamId param, const std::string& kind, size_t values,
                      int64_t wanted, bool local);
  void write_part(ParamId param, const std::string& kind, int64_t begin, int64_t end,
                  const float* values);
  void renew_norms(ParamId param);
  void grad_written(ParamId param, std::span<const float> values);
  // States in codes: their buffers, and what codes mean.
  struct Codes {
    BufferId codes, scales;
    StateCodes kind;
  };
  using BlockUse =
      std::function<void(uint8_t* codes, uint8_t& scale, int64_t begin, int64_t count)>;
  Codes codes_of(BufferId codes) const;
  void for_blocks(const Codes& codes, int64_t element, int64_t count, bool write,
                  const BlockUse& use) const;
  void read(BufferId id, int64_t element, int64_t count, float* out) const;
  void write(BufferId id, int64_t element, int64_t count, const float* in);

  Runtime& runtime_;
  StepControl& control_;
  Owner& owner_;
  const ZeroPlan& zero_;
  IdVector<ParamId, std::string> names_;
  IdVector<ParamId, std::vector<int64_t>> shapes_;  // of whole tensors
  IdVector<ParamId, ParamSlice> slices_;
  std::vector<std::string> state_kinds_;
  std::string unrefreshed_;  // parameter of which this rank alone has written the master; or ""
  int64_t version_ = 0;
  Writes writes_;
  std::vector<Own> own_;  // as own_states() has found them
};

}  // namespace ds
