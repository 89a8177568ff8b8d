#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/granules.h"
#include "core/program/levels.h"
#include "core/program/memory.h"
#include "core/program/mesh.h"
#include "core/program/program.h"
#include "core/program/state.h"
#include "core/program/state_codes.h"
#include "zero/row_tables.h"

namespace ds {

// A ZeRO stage as a value: the number of levels of ranks over which each kind of state is cut, and
// the tier where each lives. A kind that is cut over 0 levels is whole on every rank. Parameters
// and gradients are never cut over more levels than states.
struct Policy {
  // Number of levels that masters and moments are cut over.
  int states = 0;
  // Number of levels that gradient accumulators are cut over.
  int grads = 0;
  // Number of levels that the compute copies of large parameters are cut over.
  int params = 0;
  // The tier of masters, moments and accumulators.
  Tier state_tier = Tier::device;
  // The tier of parameter shards.
  Tier param_tier = Tier::device;
};

// A class of parameters, whose gradients are summed over the ranks of one group. Their states,
// gradients and copies are cut over the same group. The first class is the class of the axis
// `data`.
struct ParamClass {
  // The axes of the mesh that span the group.
  std::vector<std::string> axes;
  RankLevels levels;
  Policy policy;
};

// How tensors are quantized for communication (core/program/codes.h).
struct Quantization {
  // Bits of the codes in which compute copies of cut parameters are gathered; 0 if they are not
  // quantized.
  int64_t weights = 0;
  // Bits of the codes in which gradients are reduced; 0 if they are not quantized.
  int64_t gradients = 0;
  // Whether the error of a reduction is added to the next one (docs/reference/ops.md, `quantize`).
  bool feedback = false;
  double err_beta = 0;
  // The error is reset to 0 in steps whose number is a multiple of this, or never if this is 0.
  int64_t reset = 0;
};

// Consecutive elements of a buffer. A state may be a part of a larger buffer.
struct StateRef {
  BufferId buffer;
  int64_t first = 0;
  int64_t numel = 0;
  StateRef slice(int64_t begin, int64_t count) const { return {buffer, first + begin, count}; }
};

// The part of a state that this rank keeps. Its row says what the state is.
struct HeldState {
  StateRow row;
  // For a canonical state, the elements that this rank updates, even if it keeps the whole bucket.
  // For other states, all elements that the rank keeps.
  StateRef ref;
  // The scale of each block (u8) and the kind of the codes, if the values are kept in codes.
  StateRef scales;
  StateCodes codes = StateCodes::with_sign;
  // The level of ranks, for a row of StateRow::Extent::levels.
  int level = 0;
};

// Persistent state of one bucket.
struct BucketState {
  // Whether each rank keeps only a shard of the parameters, so that programs gather them.
  bool partitioned = false;
  // The compute copies of the elements that this rank updates, in the full copy or in the shard.
  HeldState param;
  // The buffer of whole parameters on the device; it does not exist if the bucket is partitioned.
  BufferId full;
  // The masters of the elements that this rank updates, f32 or bf16 (OptimizerConfig::masters). The
  // parameter is its own master until add_states() adds a separate one. It does so unless both
  // would have the same type and be on the device, and the optimizer makes no local steps.
  HeldState master;
  // All other states: first the canonical states of the optimizer, in its order, then the states
  // that differ from rank to rank.
  std::vector<HeldState> states;
  // The accumulators, of type ZeroPlan::sums: one or, in tree order, one for each level of the
  // binary counter.
  std::vector<BufferId> grad;
  bool own_master() const { return master.ref.buffer == param.ref.buffer; }
  // Calls f with the parameter, its master and each state.
  template <typename F>
  void for_each(const F& f) const {
    f(param);
    f(master);
    for (const HeldState& held : states) f(held);
  }
  // Returns the parameter, master or state with this name and level, or null if the bucket has no
  // such state.
  const HeldState* find(std::string_view name, int level = 0) const;
  BufferId buffer_of(std::string_view name) const {
    const HeldState* held = find(name);
    return held ? held->ref.buffer : BufferId();
  }
  const StateRef& state(size_t k) const { return states.at(k).ref; }
  // Returns the accumulator that holds the finished sum after the last micro-step.
  BufferId sum() const { return grad.back(); }
  // Index, in the accumulators, of the first element that this rank updates.
  int64_t grad_first = 0;
  // Index in ZeroPlan::norms of the norm of the first granule that this rank updates.
  int64_t norm_first = 0;
};

// How each parameter is trained now.
struct TrainedParams {
  // Whether the parameter is not trained.
  IdVector<ParamId, char> frozen;
  // Whether the parameter is trained or was trained at some time, so that it has states and a
  // master. Whether other parameters of its bucket were trained does not matter.
  IdVector<ParamId, char> begun;
  // Number of updates made while the parameter was frozen. Bias correction counts the remaining
  // ones.
  IdVector<ParamId, int64_t> missed;
  // Index of the parameter group whose settings the updates use (optimizer.param_groups).
  IdVector<ParamId, int32_t> group;
  bool operator==(const TrainedParams&) const = default;
};

// Everything that a program is compiled for, other than the graph: how parameters, gradients and
// states of every bucket are cut, where they lie, and how gradients travel.
struct ZeroPlan {
  int rank = 0;
  Mesh mesh;
  IdVector<ClassId, ParamClass> classes;
  int64_t accumulation = 1;
  // Whether micro-steps are added in the tree order of a binary counter (`reproducible`).
  bool tree = false;
  // Whether each rank adds up its own micro-steps and ranks reduce once per step (reduction
  // "boundary"). This is false if a step has a single micro-step.
  bool boundary = false;
  DType compute = DS_DTYPE_F32;
  // The type in which gradients in the compute type travel to the f32 sum
  // (communication_data_type), and whether the configuration names it.
  DType wire = DS_DTYPE_F32;
  bool wire_given = false;
  // The type of the accumulators of micro-steps (data_types.grad_accum_dtype).
  DType sums = DS_DTYPE_F32;
  Quantization quantization;
  // How gradients are compressed. A single rank does not compress them.
  GradientCompressionConfig compression;
  Layout layout;
  // The parameters whose gradients are reduced as rows. Each has its own bucket.
  std::vector<RowTable> tables;
  // Lines for reports about the tables that could be reduced as rows (ChosenTables::notes).
  std::vector<std::string> notes;
  PersistentMemory memory;
  IdVector<BucketId, BucketState> buckets;
  // The f64 sums of squares of the step's gradient, one for each granule that this rank updates.
  // There is no buffer without training.
  BufferId norms;
  // The number of elements of `norms` that are used: one for each granule of this rank's parts of
  // buckets with states.
  int64_t norms_used = 0;
  // The f64 norms of the updates of an optimizer with NormRatios, two or three for each granule.
  // Other optimizers have no such buffer.
  BufferId update_norms;
  // States that all parameters have as one tensor (Optimizer::joint).
  std::vector<HeldState> joint;
  // The size of a parameter that is updated matrix by matrix; zeros for other parameters.
  struct Matrix {
    int64_t rows = 0, cols = 0;
  };
  IdVector<ParamId, Matrix> matrices;
  TrainedParams trained;

  // Return, for a bucket cut over `cut` levels, the number of elements of a part, and the index of
  // the first element of this rank's part.
  int64_t part_numel(BucketId bucket, int cut) const;
  int64_t part_first(BucketId bucket, int cut) const;
  // Return the number of granules, the number of elements and the first element of the part that
  // this rank updates.
  int64_t granules(BucketId bucket) const {
    return part_numel(bucket) / layout.buckets[bucket].granule;
  }
  int64_t part_numel(BucketId bucket) const { return part_numel(bucket, policy(bucket).states); }
  int64_t part_first(BucketId bucket) const { return part_first(bucket, policy(bucket).states); }
  const ParamClass& cls(BucketId bucket) const { return classes[layout.buckets[bucket].cls]; }
  const RankLevels& levels(BucketId bucket) const { return cls(bucket).levels; }
  const Policy& policy(BucketId bucket) const { return cls(bucket).policy; }
  // Returns the type in which the gradients of a bucket travel to the f32 sum.
  DType wire_of(BucketId bucket) const {
    const DType own = layout.buckets[bucket].dtype;
    return own == compute || wire_given ? wire : own;
  }
  // Returns the tier of states, which is the same for all classes.
  Tier state_tier() const { return classes.front().policy.state_tier; }
  // Returns whether any parameter of the bucket is trained.
  bool trains(BucketId bucket) const;
  // Returns whether the bucket has states. They have room for all parameters of the bucket,
  // including frozen ones.
  bool has_states(BucketId bucket) const;
  std::vector<ParamPlace> trained_params(BucketId bucket) const;
  // Returns the row table that the bucket holds, or null if it does not hold one.
  const RowTable* table(BucketId bucket) const;
  // Returns the highest level of the binary counter, or 0 if the plan has none.
  int grad_top() const;
  // Returns the buffer of a joint state, or none if the plan has no such state.
  BufferId joint_buffer(std::string_view name) const;
  // Returns the state that holds one of the coefficients of 1-bit LAMB, with an element for each
  // parameter. `kind` 0 is the factor that scales the momentum for the exchange, 1 the mean of the
  // ratios, and 2 the factor by which the last step multiplied this mean (docs/reference/ops.md,
  // "frozen_lamb_ratios").
  StateRef coefficients(int64_t kind) const;
  // Returns the part of the numerics key that says how tensors are quantized; "" without
  // quantization.
  std::string quantization_key(const ZeroConfig& zero) const;
};

// Returns the places of parameters in their bucket, as runs of elements.
std::vector<ElementRun> places_of(std::span<const ParamPlace> params);

}  // namespace ds
