#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/base/ids.h"
#include "core/graph/graph.h"
#include "core/graph/param_slice.h"
#include "core/program/granules.h"

namespace ds {

// A kind of per-element training state, f32: its position in StateAccess::state_kinds. Master comes
// first, then the optimizer's states in the order of its row (optim/optimizer.h).
enum class StateKind : int32_t { master = 0 };
inline constexpr const char* kMasterName = "master";

// State that every rank has for itself: errors of compression, steps that others do not know of.
// `name` is that of a tensor.
struct OwnState {
  std::string name;
  int64_t numel = 0;
  bool common = false;  // equal on all ranks: true on another number of them, too
};

// What checkpoint code sees of an engine: named f32 state, cut by one layout. Elements of bucket b
// that this rank holds are [first(b), first(b) + held(b)); every element is held by at least one
// rank; of the layout's equal cuts of each bucket a rank holds one that is its own to write.
class StateAccess {
 public:
  virtual ~StateAccess() = default;
  virtual Communicator& comm() = 0;
  virtual const Layout& layout() const = 0;
  virtual const IdVector<ParamId, std::string>& param_names() const = 0;
  virtual const IdVector<ParamId, std::vector<int64_t>>& param_shapes()
      const = 0;  // of whole tensors
  virtual const ParamSlice& slice(
      ParamId param) const = 0;  // what of it lies in this rank's buckets
  // Whether this rank writes its own cut of the parameter: of ranks that hold equal copies the
  // first does.
  virtual bool writes(ParamId param) const = 0;
  virtual const std::vector<std::string>& state_kinds()
      const = 0;  // names: {"master", "exp_avg", ...}
  virtual int64_t first(BucketId bucket) const = 0;
  virtual int64_t held(BucketId bucket) const = 0;
  // Where the rank's own cut of layout().buckets[b].shard() elements begins.
  virtual int64_t own_first(BucketId bucket) const = 0;
  // Copies elements [begin, begin + count) of the bucket, which this rank holds.
  virtual void read_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                          float* out) = 0;
  virtual void write_state(StateKind kind, BucketId bucket, int64_t begin, int64_t count,
                           const float* in) = 0;

  // Elements of state i of own_states(). A checkpoint that was saved by another number of ranks has
  // none that would fit but the common ones: others begin again at 0.
  virtual std::vector<OwnState> own_states() { return {}; }
  virtual void read_own(size_t, int64_t, int64_t, float*) {}
  virtual void write_own(size_t, int64_t, int64_t, const float*) {}
  virtual void forget_own() {}
};

}  // namespace ds
