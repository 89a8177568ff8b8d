// Problem. Each optimizer, and each way to compress or quantize gradients, keeps states of a
// different shape. Without a common description, all code that handles states (placement,
// checkpoints, memory figures, resets) would have to know all of them.
//
// Invariant. A state is a row (core/program/state.h): its extent says which elements a rank keeps,
// and its other members say how they are saved and when they are reset. Only the code that emits
// instructions for a state looks it up by name.
//
// Algorithm. Rows come from the optimizer, from gradient compression and from quantization, in this
// order, which is the order of the buffers. Sizes and the names of pieces follow from extents.
#include "zero/state_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "core/base/element_run.h"
#include "core/base/error.h"
#include "core/program/signs.h"
#include "core/program/state_codes.h"
#include "optim/optimizer.h"

namespace ds {
namespace {

using Extent = StateRow::Extent;

// Returns the number of elements that a rank keeps of a bucket's state. On a single rank the errors
// of signs are empty, because it sends nothing.
int64_t numel_of(const ZeroPlan& plan, BucketId b, Extent extent, int level) {
  const Bucket& bucket = plan.layout.buckets[b];
  const int64_t ranks = plan.levels(b).ranks();
  switch (extent) {
    case Extent::part:
      return plan.part_numel(b);
    case Extent::whole:
      return bucket.numel;
    case Extent::share:
      return bucket.numel / ranks;
    case Extent::levels:
      return plan.part_numel(b, level);
    case Extent::signs:
    case Extent::answered_signs:
      return ranks == 1 ? 0
                        : (extent == Extent::signs ? ranks : 1) *
                              sign_sizes(places_of(bucket.params), ranks, 1).chunks;
    case Extent::filling:
    case Extent::params:
      break;
  }
  raise(DS_ERROR_INTERNAL, "a bucket has no state of this extent");
}

// Returns the number of elements of a state that all parameters have as one tensor. All parameters
// are then in the first class.
int64_t joint_numel(const ZeroPlan& plan, Extent extent) {
  const int64_t ranks = plan.classes.front().levels.ranks();
  if (extent == Extent::params) return 3 * static_cast<int64_t>(plan.layout.bucket_of.size());
  if (ranks == 1) return 0;
  if (extent == Extent::filling) return ranks * sign_chunk(1, ranks);
  int64_t numel = 0;
  for (const Bucket& bucket : plan.layout.buckets) {
    for (const ParamPlace& p : bucket.params) numel += p.numel;
  }
  return (extent == Extent::signs ? ranks : 1) * sign_chunk(numel, ranks);
}

// Adds the buffer of one state, and a second buffer for scales if the state is kept in codes.
// States are on the device, except that canonical states cut into parts are in the tier of states.
void add_row(ZeroPlan& plan, const OptimizerConfig& config, BucketId b, const StateRow& row,
             int level) {
  const int64_t numel = numel_of(plan, b, row.extent, level);
  if (numel == 0) return;
  const Tier tier = plan.policy(b).state_tier;
  const std::string name = plan.layout.buckets[b].name + "." + row.name +
                           (level == 0 ? "" : "." + std::to_string(level));
  const bool near = !row.canonical() || row.extent != Extent::part;
  std::vector<HeldState>& states = plan.buckets[b].states;
  HeldState held{.row = row, .level = level};
  held.codes = codes_of_state(states.size());
  const BufferId buffer =
      plan.memory.add(row.holds, name, row.canonical() ? config.states : DS_DTYPE_F32, numel,
                      near ? Tier::device : tier);
  held.ref = {buffer, 0, numel};
  if (row.canonical() && row.extent == Extent::whole)
    held.ref = held.ref.slice(plan.part_first(b), plan.part_numel(b));
  if (row.canonical() && config.states == DS_DTYPE_U8) {
    const int64_t blocks = numel / kStateBlock;
    held.scales = {plan.memory.add(row.holds, name + ".scales", config.states, blocks,
                                   tier == Tier::device ? Tier::device : Tier::host),
                   0, blocks};
  }
  states.push_back(std::move(held));
}

}  // namespace

void add_states(ZeroPlan& plan, const OptimizerConfig& config, BucketId b) {
  const Bucket& bucket = plan.layout.buckets[b];
  const Optimizer& optimizer = optimizer_of(config);
  const Policy& policy = plan.policy(b);
  BucketState& s = plan.buckets[b];
  // The master of a parameter in f32 is in f32, too. A parameter is its own master if it has the
  // type of its master, both would be on the device, and the optimizer makes no local steps (0/1
  // Adam).
  const DType type = bucket.dtype == DS_DTYPE_F32 ? DS_DTYPE_F32 : config.masters;
  const bool own_master = bucket.dtype == type && !optimizer.steps_locally() &&
                          policy.state_tier == Tier::device &&
                          plan.memory.buffers[s.param.ref.buffer].tier == Tier::device;
  if (!own_master) {
    const int64_t part = plan.part_numel(b);
    s.master.ref = {
        plan.memory.add(Holds::master, bucket.name + ".master", type, part, policy.state_tier), 0,
        part};
  }
  for (const StateRow& row : optimizer.states) {
    if (row.of_matrices || !bucket.matrices) add_row(plan, config, b, row, 0);
  }
  if (plan.compression.on()) {
    add_row(plan, config, b, error_row(kSentError, Extent::whole), 0);
    if (plan.compression.type == "int8")
      add_row(plan, config, b, error_row(kAnswerError, Extent::share), 0);
  }
  for (int level = 0; level <= plan.grad_top(); ++level) {
    const std::string name =
        bucket.name + ".grad" + (level == 0 ? "" : "." + std::to_string(level));
    s.grad.push_back(plan.memory.add(Holds::grad, name, plan.sums, plan.part_numel(b, policy.grads),
                                     policy.state_tier));
  }
  s.grad_first = plan.part_first(b) - plan.part_first(b, policy.grads);
  if (!plan.quantization.feedback || plan.table(b)) return;
  StateRow error = error_row(kGradientError, Extent::levels);
  error.forgotten = StateRow::Forgotten::resized;
  error.saved_as = "gradient_error";
  for (int level = 0; level < plan.levels(b).depth(); ++level)
    add_row(plan, config, b, error, level);
}

void add_joint_states(ZeroPlan& plan, const OptimizerConfig& config) {
  if (!plan.joint.empty()) return;
  for (const StateRow& row : optimizer_of(config).joint) {
    const int64_t numel = joint_numel(plan, row.extent);
    if (numel == 0) continue;
    plan.joint.push_back(
        {row, {plan.memory.add(row.holds, row.name, DS_DTYPE_F32, numel, Tier::device), 0, numel}});
  }
}

ElementRun elements_of(const ZeroPlan& plan, BucketId b, const HeldState& state) {
  int64_t first = 0;
  if (state.row.extent == Extent::part) first = plan.part_first(b);
  if (state.row.extent == Extent::share) first = plan.mesh.leaf(0, plan.rank) * state.ref.numel;
  if (state.row.extent == Extent::levels) first = plan.part_first(b, state.level);
  return {first, first + plan.memory.buffers[state.ref.buffer].numel};
}

namespace {

// Lists the pieces of all states that differ from rank to rank, and those of the joint states.
class Pieces {
 public:
  explicit Pieces(const ZeroPlan& plan) : plan_(plan) {}

  std::vector<OwnPiece> run() {
    for (BucketId b : plan_.buckets.ids()) {
      for (const HeldState& s : plan_.buckets[b].states) {
        if (!s.row.differs()) continue;
        const bool signs = s.row.extent == Extent::signs || s.row.extent == Extent::answered_signs;
        signs ? add_tensors(b, s) : add_elements(b, s);
      }
    }
    for (const HeldState& s : plan_.joint)
      out_.push_back(
          {ParamId(), s.row.saved_name(), s.ref, s.row.saved == StateRow::Saved::common});
    return std::move(out_);
  }

 private:
  // Signs are sent tensor by tensor, in chunks, so a tensor's errors are one piece.
  void add_tensors(BucketId b, const HeldState& s) {
    const std::vector<ParamPlace> trained = plan_.trained_params(b);
    const int64_t ranks = plan_.levels(b).ranks(),
                  chunks = s.row.extent == Extent::signs ? ranks : 1;
    for_sign_tensors(places_of(trained), ranks, 1, [&](const SignTensor& t) {
      out_.push_back({trained[static_cast<size_t>(t.index)].param,
                      s.row.saved_name(),
                      {s.ref.buffer, chunks * t.first, chunks * t.chunk}});
    });
  }

  // Elements are counted from the start of the parameter, so that a run with other buckets finds
  // them again. If a rank keeps only some elements, the name contains the index of the first one,
  // so that a run with another partition finds no piece of that name and starts with zeros.
  void add_elements(BucketId b, const HeldState& s) {
    const ElementRun here = elements_of(plan_, b, s);
    const bool cut = here.end - here.begin < plan_.layout.buckets[b].numel;
    for (const ParamPlace& p : plan_.trained_params(b)) {
      const int64_t begin = std::max(here.begin, p.begin),
                    end = std::min(here.end, p.begin + p.numel);
      if (begin >= end) continue;
      std::string name = s.row.saved_name();
      if (s.row.extent == Extent::levels) name += fmt::format(".{}", s.level);
      if (cut || s.row.extent == Extent::levels || s.row.extent == Extent::share)
        name += fmt::format(".{}", begin - p.begin);
      out_.push_back({p.param, std::move(name), {s.ref.buffer, begin - here.begin, end - begin}});
    }
  }

  const ZeroPlan& plan_;
  std::vector<OwnPiece> out_;
};

}  // namespace

std::vector<OwnPiece> own_pieces(const ZeroPlan& plan) { return Pieces(plan).run(); }

}  // namespace ds
