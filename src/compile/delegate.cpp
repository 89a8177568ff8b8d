// Compiles a training step whose forward and backward parts belong to a host application.
//
// Problem: while the step runs, the host decides which parameters it leases and in which order it
// passes gradients, and the next step may differ. libds must shard, gather, reduce and update as in
// native mode, with the same bits, and should prefetch. But it learns of a call of the host only
// when the call is made.
//
// Algorithm: there are two forms of every step. *Fragments* are short programs, each complete in
// itself: gather one bucket, or reduce one bucket in one micro-step. Fragments can serve any order
// of calls. Each runs when a call needs it, between the programs of every step (init, refresh,
// update). The *recorded step* (recorded.cpp) is the last step of the host as one program. Each
// call is an instruction that does nothing, but whose operands say what the host reads or writes.
// All passes treat this program as a native step: gathers are inserted before the leases that read
// them, reductions after the last gradient of a bucket, and both are moved so that they overlap
// with the host's work. Fragments remain available, because a host may leave the recorded order at
// any call.
//
// Invariants: both forms have the same persistent buffers, so either may follow the other in the
// middle of a step. A bucket is reduced by the same instructions in both, so the bits do not depend
// on which form ran. In the recorded step no call of the host falls between the beginning and the
// end of a reduction. So at any call at which the host leaves the order, each bucket of the
// micro-step is either reduced, or its gradients are where the host put them. The compiler checks
// this.
//
// Cost: a gather fragment for each partitioned bucket, and a reduce fragment for each trained
// bucket and each kind of micro-step. The recorded step is linear in the calls of a step. If
// micro-steps repeat, only a few of them are compiled (ADR 23).
//
// Sources: ZeRO's hooks gather and release by module in the order of the last step (Rajbhandari et
// al., SC 2021, and DeepSpeed's parameter coordinator). Here this order is compiled instead of
// being followed at run time.
#include "compile/delegate.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compile/named_params.h"
#include "compile/programs/programs.h"
#include "core/base/hash.h"
#include "core/base/ids.h"
#include "core/base/shape.h"
#include "core/graph/graph.h"
#include "core/program/granules.h"
#include "core/program/mesh.h"
#include "core/program/program.h"
#include "optim/optimizer.h"
#include "update/matrix_update.h"
#include "zero/policy.h"
#include "zero/reduce.h"
#include "zero/zero_plan.h"

namespace ds {
namespace {

// Returns a hash of everything that must be equal on all ranks. libds has no graph in delegate
// mode, and the host's calls are not known yet, so it covers parameters, configuration, choices and
// buckets.
std::string hash_of(const Plan& plan, const Config& config) {
  Hash128 hash;
  const HostPlaces& host = plan.host;
  for (ParamId p : host.params.ids()) {
    hash.update(host.params[p].name + host.types[p].text() +
                (plan.zero.trained.frozen[p] ? " frozen" : "") +
                fmt::format(" group {}", plan.zero.trained.group[p]));
  }
  hash_settings(plan, config, hash);
  for (const Bucket& b : plan.zero.layout.buckets)
    hash.update(fmt::format("{} {}", b.name, b.numel));
  return hash.hex();
}

// Compiles everything that follows from plan.zero: the buffers of gradients and the programs of
// every step. Also makes room for fragments in the plan's memory.
void compile_always(Plan& plan, const Config& config, const Machine& machine) {
  IdVector<BucketId, BufferId>& grads = plan.host.grads;
  grads.resize(plan.zero.buckets.size());
  for (BucketId b : grads.ids()) {
    if (!plan.zero.trains(b) || grads[b].exists()) continue;
    const Bucket& bucket = plan.zero.layout.buckets[b];
    grads[b] = plan.zero.memory.add(Holds::lease, bucket.name + ".lease_grad", bucket.dtype,
                                    bucket.numel, Tier::device);
  }
  plan.host.first_grads = grads;
  for (BucketId b : grads.ids()) {
    if (takes_first_gradients(plan.zero, b))
      plan.host.first_grads[b] = plan.zero.buckets[b].grad[0];
  }
  plan.choices.prefetch = config.zero.overlap_comm;
  plan.hash = hash_of(plan, config);
  plan.programs.clear();
  for (ProgramKind kind : {ProgramKind::init, ProgramKind::refresh, ProgramKind::update})
    plan.programs[kind];
  make_programs(plan, config, machine, {.choices = plan.choices, .verify_passes = true});
  for (const ProgramKey& key : fragment_keys(plan))
    plan.memory.add(make_fragment(plan, config, machine, key));
  check_budget(plan.zero.memory.buffers, plan.memory, config.memory_budget);
}

}  // namespace

Plan compile_delegate(const Config& config, const IdVector<ParamId, ParamSpec>& params,
                      const IdVector<ParamId, Shape>& shapes, int rank, const Mesh& mesh,
                      const Machine& machine) {
  Plan plan;
  HostPlaces& host = plan.host;
  host.params = params;
  IdVector<ParamId, std::string> names;
  for (const ParamSpec& p : params) names.push_back(p.name);
  IdVector<ParamId, size_t> dims;
  for (const Shape& shape : shapes) dims.push_back(shape.rank());
  IdVector<ParamId, char> frozen = frozen_by_name(config.frozen, names);
  const IdVector<ParamId, int32_t> groups = groups_by_name(config.optimizer, names, dims);
  for (ParamId p : params.ids()) {
    host.params[p].frozen = frozen[p] != 0;
    host.params[p].group = groups[p];
    set_matrix(config.optimizer, host.params[p], shapes[p]);
  }
  // The graph has parameters without initial values, so the init program draws nothing.
  plan.graph.params.resize(params.size());
  plan.zero = make_zero_plan(config, host.params, rank, mesh, machine);
  if (std::string note = matrix_updates_note(plan.zero); !note.empty())
    plan.zero.notes.push_back(note);
  for (ParamId p : params.ids()) {
    const BucketId b = plan.zero.layout.bucket_of[p];
    host.types.push_back({plan.zero.layout.buckets[b].dtype, shapes[p]});
  }
  for (BucketId b : plan.zero.buckets.ids()) {
    const Bucket& bucket = plan.zero.layout.buckets[b];
    const BucketState& state = plan.zero.buckets[b];
    host.lease.push_back(state.partitioned
                             ? plan.zero.memory.add(Holds::lease, bucket.name + ".lease",
                                                    bucket.dtype, bucket.numel, Tier::device)
                             : state.full);
  }
  compile_always(plan, config, machine);
  return plan;
}

Plan recompile_delegate(const Plan& plan, const Config& config, const Machine& machine,
                        const TrainedParams& trained) {
  // The programs are not copied, since all of them are compiled again.
  Plan next;
  next.zero = plan.zero;
  next.graph = plan.graph;
  next.host = plan.host;
  set_trained(next.zero, config.optimizer, trained);
  compile_always(next, config, machine);
  return next;
}

std::vector<ProgramKey> fragment_keys(const Plan& plan) {
  std::vector<ProgramKey> keys;
  const std::vector<MicroOfStep> all = reductions(plan.zero);
  for (BucketId b : plan.host.lease.ids()) {
    if (plan.zero.buckets[b].partitioned) keys.emplace_back(ProgramKind::gather, b);
    if (!plan.zero.trains(b)) continue;
    for (const MicroOfStep& at : all) keys.emplace_back(b, at);
  }
  return keys;
}

Program make_fragment(const Plan& plan, const Config& config, const Machine& machine,
                      const ProgramKey& key) {
  return make_program({plan, config, machine, {.choices = {}, .verify_passes = true}}, key);
}

}  // namespace ds
