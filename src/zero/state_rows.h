#pragma once
#include <string>
#include <vector>

#include "core/base/element_run.h"
#include "core/config/config.h"
#include "core/program/state.h"
#include "zero/zero_plan.h"

namespace ds {

// Adds to a bucket the states that training keeps in addition to its parameters: masters, the
// optimizer's states, accumulators of gradients, errors of compression and quantization.
void add_states(ZeroPlan& plan, const OptimizerConfig& config, BucketId bucket);

// Adds the states that all parameters have as one tensor. Does nothing if the plan already has
// them.
void add_joint_states(ZeroPlan& plan, const OptimizerConfig& config);

// A piece of a state that each rank saves for itself, as a checkpoint stores it. The name
// identifies the elements of the piece, so a run with other buckets finds the same bytes again and
// never mistakes other bytes for them.
struct OwnPiece {
  // The parameter that the piece belongs to, or none if the piece belongs to the one tensor that
  // all parameters form.
  ParamId param;
  std::string name;
  StateRef ref;
  // Whether the piece is equal on all ranks.
  bool common = false;
};
// Returns the pieces of all states that differ from rank to rank, and those of the joint states.
std::vector<OwnPiece> own_pieces(const ZeroPlan& plan);

// Returns the elements of the bucket that a state covers on this rank.
ElementRun elements_of(const ZeroPlan& plan, BucketId bucket, const HeldState& state);

}  // namespace ds
