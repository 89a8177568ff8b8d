#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"

namespace ds {

// A kind of per-element f32 training state, as its index in StateAccess::state_kinds(). The master
// comes first, then the optimizer's states in the order of its row (optim/optimizer.h).
enum class StateKind : int32_t { master = 0 };
inline constexpr const char* kMasterName = "master";

// A state that each rank stores for itself, such as compression errors or local steps not yet
// averaged over the ranks. `name` is the name of its tensor.
struct OwnState {
  std::string name;
  int64_t numel = 0;
  // Whether the state is equal on all ranks, so that it stays valid if their number changes.
  bool common = false;
};

// The view that checkpoint code has of the per-rank states of one rank. If a checkpoint was saved
// by another number of ranks, only its common states fit; the others start at 0.
class OwnStateAccess {
 public:
  virtual ~OwnStateAccess() = default;
  // Returns the states that the engine has now.
  virtual std::vector<OwnState> states() = 0;
  // Copies elements [begin, begin + count) of the state states()[index]. Call states() again after
  // states have changed.
  virtual void read(size_t index, int64_t begin, int64_t count, float* out) = 0;
  virtual void write(size_t index, int64_t begin, int64_t count, const float* in) = 0;
  // Drops the states that are valid in one layout only, such as compression errors. They start
  // again at 0.
  virtual void forget() = 0;
};

// The view that checkpoint code has of an engine: named f32 states, partitioned by one layout. This
// rank holds the elements [first(b), first(b) + held(b)) of bucket b, and every element is held by
// at least one rank. The layout cuts each bucket into equal shards, and the rank writes the shard
// that begins at own_first(b).
class StateAccess {
 public:
  virtual ~StateAccess() = default;
  virtual Communicator& comm() = 0;
  virtual const Layout& layout() const = 0;
  virtual const IdVector<ParamId, std::string>& param_names() const = 0;
  // Shapes of the unpartitioned tensors.
  virtual const IdVector<ParamId, std::vector<int64_t>>& param_shapes() const = 0;
  // Returns which part of the parameter this rank's buckets contain.
  virtual const ParamSlice& slice(ParamId param) const = 0;
  // Returns whether this rank writes its shard of the parameter. If several ranks have equal
  // copies, only the first one writes.
  virtual bool writes(ParamId param) const = 0;
  // Names of the kinds of state: {"master", "exp_avg", ...}.
  virtual const std::vector<std::string>& state_kinds() const = 0;
  // Return the index of the first element, and the number of elements, of the bucket that this rank
  // holds.
  virtual int64_t first(BucketId bucket) const = 0;
  virtual int64_t held(BucketId bucket) const = 0;
  // Returns the index of the first of the layout().buckets[b].shard() elements that this rank
  // writes.
  virtual int64_t own_first(BucketId bucket) const = 0;
  // Copy elements [begin, begin + count) of the bucket. This rank must hold all of them.
  virtual void read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                          float* out) = 0;
  virtual void write_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                           const float* in) = 0;
  // Returns the per-rank states, or null if the engine never has any.
  virtual OwnStateAccess* own() { return nullptr; }
};

// Returns the per-rank states that this rank has now.
inline std::vector<OwnState> own_states(StateAccess& state) {
  return state.own() ? state.own()->states() : std::vector<OwnState>{};
}

}  // namespace ds
