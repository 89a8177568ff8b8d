#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/granules.h"
#include "core/program/levels.h"
#include "core/program/mesh.h"
#include "core/program/program.h"
#include "zero/row_tables.h"

namespace ds {

// A ZeRO stage is a point: over how many levels of ranks each kind of state is cut (0: every rank
// has all of it), and in which tier each lives. Never params > states or grads > states.
struct Policy {
  int states = 0;                  // masters and moments
  int grads = 0;                   // gradient accumulators
  int params = 0;                  // compute copies of large parameters
  Tier state_tier = Tier::device;  // masters, moments, accumulators
  Tier param_tier = Tier::device;  // parameter shards
};
Policy make_policy(const ZeroConfig& zero, const RankLevels& levels);

// Levels of the ranks of a group: nodes, where there are several, their memory nodes, and the shard
// group of mics_shard_size or zero_hpz_partition_size, which is all ranks of a group that has fewer
// than those along `data`. Blocks below all ranks are of a power of two, so that sums are added as
// without them; nodes of another size are not levels. Throws DS_ERROR_CONFIG.
RankLevels make_levels(const Config& config, const Mesh& mesh, RankGroup group,
                       const Machine& machine);

// Parameters whose gradients are summed over the ranks of one group, over which everything of
// theirs is cut. The first class is that of `data`.
struct ParamClass {
  std::vector<std::string> axes;  // of the mesh, of which the group is made
  RankLevels levels;
  Policy policy;
};

// Bits of the codes (core/program/codes.h) in which compute copies of cut parameters are gathered
// and gradients reduced; 0: they are not quantized. With feedback what a reduction has lost is
// added to the next one (docs/reference/ops.md, `quantize`).
struct Quantization {
  int64_t weights = 0;
  int64_t gradients = 0;
  bool feedback = false;
  double err_beta = 0;
  int64_t reset = 0;  // steps
};

// Elements of a buffer, for state that may be a part of a larger buffer.
struct StateRef {
  BufferId buffer;
  int64_t first = 0;
  int64_t numel = 0;
  StateRef slice(int64_t begin, int64_t count) const { return {buffer, first + begin, count}; }
};

// Persistent state of one bucket.
struct BucketState {
  bool partitioned = false;  // parameters live as shards
  StateRef param;   // what update writes: this rank's place in the full copy or in the shard
  BufferId full;    // whole parameters on the device; none when partitioned
  StateRef master;  // f32, or bf16 (OptimizerConfig::masters): what this rank updates; without
                    // training the same as param
  // f32 or bf16, beside master: those of the optimizer, in its order. The momentum of one that
  // compresses it is this rank's part of a buffer that has the whole bucket. Matrices that are
  // updated as such have the first alone.
  std::vector<StateRef> states;
  // Where states are codes (core/program/state_codes.h), u8: the scales of each. They lie in
  // memory.
  std::vector<StateRef> scales;
  std::vector<BufferId> grad;  // accumulators of type ZeroPlan::sums: one; with tree order one per
                               // binary-counter level
  // f32 on the device, with feedback: of what this rank quantizes at each level.
  std::vector<BufferId> errors;
  // The same of what is compressed tensor by tensor (core/program/signs.h); none on a single rank.
  BufferId worker_error, server_error;
  // Of gradients that are compressed (ZeroPlan::compression), f32 on the device: of what this rank
  // sends, whole; of int8 codes also of the sum that it answers with, its even part of the bucket.
  BufferId sent_error, answer_error;
  // f32, whole, on the device: this rank's own steps since ranks last agreed
  // (Optimizer::steps_locally). What it computes with is master and this.
  BufferId own_steps;
  BufferId sum() const { return grad.back(); }  // the finished one of grad
  int64_t grad_first = 0;  // element of grad where the part that this rank updates begins
  int64_t norm_first = 0;  // element of ZeroPlan::norms of this part's first granule
};

// Of momenta that are compressed as one tensor (Optimizer::joins_momenta), f32 on the device.
struct JoinedMomenta {
  BufferId worker_error, server_error;  // none on a single rank
  // What fills the one tensor up to whole chunks: as in DeepSpeed it goes with the momenta and
  // comes back.
  BufferId padding;
  // Three numbers of each parameter, kind behind kind: what its momentum is multiplied by on its
  // way; the mean of its ratios; the last factor of this (docs/reference/ops.md,
  // "frozen_lamb_ratios").
  BufferId coefficients;
  StateRef kind(int64_t k, int64_t params) const { return {coefficients, k * params, params}; }
};

// How each parameter is trained now.
struct TrainedParams {
  IdVector<ParamId, char> frozen;  // not at all
  // It has states of its own and a master: it is trained, or was at some time. What lies beside it
  // in its bucket decides nothing.
  IdVector<ParamId, char> begun;
  // Updates of the run that it was not part of. Its bias correction counts the others.
  IdVector<ParamId, int64_t> missed;
  IdVector<ParamId, int32_t> group;  // whose values its updates have (optimizer.param_groups)
  bool operator==(const TrainedParams&) const = default;
};

// What a program is compiled for, besides the graph.
struct ZeroPlan {
  int rank = 0;
  Mesh mesh;
  IdVector<ClassId, ParamClass> classes;
  int64_t accumulation = 1;
  bool tree = false;  // reproducible: binary counter over micro-steps
  // Of several micro-steps: each rank adds up its own, and ranks reduce once (reduction
  // "boundary").
  bool boundary = false;
  DType compute = DS_DTYPE_F32;
  DType wire = DS_DTYPE_F32;  // of gradients on their way to the f32 sum (communication_data_type)
  DType sums = DS_DTYPE_F32;  // of what micro-steps are added to (data_types.grad_accum_dtype)
  Quantization quantization;
  GradientCompressionConfig compression;  // of gradients, where there are several ranks
  Layout layout;
  std::vector<RowTable>
      tables;  // of which gradients are reduced as rows, each in a bucket of its own
  std::vector<std::string> notes;      // what was decided about them, a line each
  IdVector<BufferId, Buffer> buffers;  // every persistent buffer of the engine, without offsets
  IdVector<BucketId, BucketState> buckets;
  IdVector<InputId, BufferId> inputs;  // accumulation x bound elements
  BufferId scalars;
  BufferId norms;  // f64, one per granule that this rank updates: sums of squares of the step; none
                   // without training
  int64_t norms_used = 0;  // elements of it: of buckets that have states
  BufferId
      update_norms;  // f64, two or three per granule, for optimizers with NormRatios; else none
  JoinedMomenta joined;
  // Of parameters that are updated matrix by matrix; of the others 0.
  struct Matrix {
    int64_t rows = 0, cols = 0;
  };
  IdVector<ParamId, Matrix> matrices;
  // f32[accumulation]: loss of each micro-step of this rank. With a loss_unit u, a power of two,
  // the weight w of each follows them, and gradients of the micro-step are w / u times those of its
  // loss.
  BufferId loss;
  int64_t loss_unit = 0;
  TrainedParams trained;

  // Of a bucket cut over `cut` levels: elements of a part, and where this rank's begins.
  int64_t part_numel(BucketId bucket, int cut) const;
  int64_t part_first(BucketId bucket, int cut) const;
  // The same of what this rank updates.
  int64_t granules(BucketId bucket) const {
    return part_numel(bucket) / layout.buckets[bucket].granule;
  }
  int64_t part_numel(BucketId bucket) const { return part_numel(bucket, policy(bucket).states); }
  int64_t part_first(BucketId bucket) const { return part_first(bucket, policy(bucket).states); }
  const ParamClass& cls(BucketId bucket) const { return classes[layout.buckets[bucket].cls]; }
  const RankLevels& levels(BucketId bucket) const { return cls(bucket).levels; }
  const Policy& policy(BucketId bucket) const { return cls(bucket).policy; }
  Tier state_tier() const { return classes.front().policy.state_tier; }  // of all classes
  bool trains(BucketId bucket) const;                                    // any of its parameters
  bool has_states(BucketId bucket) const;  // room for those of all its parameters
  std::vector<ParamPlace> trained_params(BucketId bucket) const;  // of a bucket
  const RowTable* table(BucketId bucket) const;                   // that it holds, or null
  int grad_top() const;  // highest level of the binary counter; 0 without one
  // What the bits of a step depend on: a part of the numerics key; "" without quantization.
  std::string quantization_key(const ZeroConfig& zero) const;
  BufferId add(Holds holds, std::string name, DType dtype, int64_t numel, Tier tier);
};

// Where parameters lie, as runs of elements.
std::vector<ElementRun> places_of(std::span<const ParamPlace> params);

// From now on parameters are trained so. What has states keeps them; a bucket that is trained for
// the first time gets its own behind all other buffers. Throws DS_ERROR_CONFIG when nothing is left
// to train.
void set_trained(ZeroPlan& plan, const Config& config, const TrainedParams& trained);

// Layout and states of the parameters under the configuration. Inputs and loss are added by the
// caller. Without `training` there are parameters only: each is its own master, in the compute
// type. `tables`: what config.sparse_gradients may reduce as rows.
ZeroPlan make_zero_plan(const Config& config, IdVector<ParamId, ParamSpec> params, int rank,
                        const Mesh& mesh, const Machine& machine, bool training = true,
                        std::span<const RowTable> tables = {});

}  // namespace ds
