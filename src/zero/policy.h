#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/program/granules.h"
#include "core/program/program.h"

namespace ds {

// A ZeRO stage is a point: which kinds of state are partitioned over the ranks, and in which tier each lives.
struct Policy {
  bool partition_states = false;   // masters and moments
  bool partition_grads = false;    // gradient accumulators
  bool partition_params = false;   // compute copies of large parameters
  Tier state_tier = Tier::device;  // masters, moments, accumulators
  Tier param_tier = Tier::device;  // parameter shards
};
Policy make_policy(const ZeroConfig& zero);

// Elements of a buffer, for state that may be a part of a larger buffer.
struct StateRef {
  BufferId buffer = -1;
  int64_t first = 0;
  int64_t numel = 0;
};

// Persistent state of one bucket.
struct BucketState {
  bool partitioned = false;      // parameters live as shards
  StateRef param;                // what update writes: this rank's place in the full copy, or the shard
  BufferId full = -1;            // whole parameters on the device; -1 when partitioned
  StateRef master;               // f32: what this rank updates; without training the same as param
  std::vector<StateRef> states;  // f32, beside master: those of the optimizer, in its order
  std::vector<BufferId> grad;    // f32 accumulators: one; with tree order one per binary-counter level
  int64_t grad_first = 0;        // element of grad where the part that this rank updates begins
  int64_t norm_first = 0;        // element of ZeroPlan::norms of this part's first granule
};

// What a program is compiled for, besides the graph.
struct ZeroPlan {
  int rank = 0;
  int world = 1;
  int64_t accumulation = 1;
  bool tree = false;  // reproducible: binary counter over micro-steps
  DType compute = DS_DTYPE_F32;
  Policy policy;
  Layout layout;
  std::vector<Buffer> buffers;       // every persistent buffer of the engine, without offsets
  std::vector<BucketState> buckets;  // per layout bucket
  std::vector<BufferId> inputs;      // per graph input: accumulation x bound elements
  BufferId scalars = -1;             // kScalarBlock
  BufferId norms = -1;  // f64, one per granule that this rank updates: sums of squares of the step; -1
                        // without training
  BufferId loss = -1;   // f32[accumulation]: loss of each micro-step of this rank

  int64_t part(size_t bucket) const;  // elements of a bucket that this rank updates
  int grad_top() const;               // index in BucketState::grad of the finished sum
  BufferId add(std::string name, DType dtype, int64_t numel, Tier tier);
};

// Layout and states of the parameters under the configuration. Inputs and loss are added by the caller.
// Without `training` there are parameters only: each is its own master, in the compute type.
ZeroPlan make_zero_plan(const Config& config, const std::vector<ParamSpec>& params, int rank, int world,
                        bool training = true);

}  // namespace ds
