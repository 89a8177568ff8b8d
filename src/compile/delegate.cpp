// A training step whose forward and backward part belong to a host program.
//
// Problem: the host decides while the step runs which parameters it leases, in which order its
// gradients come, and may decide otherwise in the next step. libds must shard, gather, reduce and
// update as in native mode, to the same bits, and should prefetch; but it knows what the host does
// only once it has done it.
//
// Algorithm: there are two forms of every step. *Fragments* are short programs, each complete in
// itself: gather one bucket, or reduce one bucket in one micro-step. Any order of calls can be
// served by running them one after the other, between programs that every step needs (init,
// refresh, update). The *recorded step* (recorded.cpp) is what the host did last time as one
// program: each call is an instruction that runs nowhere, but whose operands say what the host
// reads or writes there. All passes then treat it as a native step: gathers are inserted where a
// lease reads, reductions behind the last gradient of a bucket, and both are moved under the host's
// work. Fragments stay compiled, because a host may leave the recorded order at any call.
//
// Invariants:
//   Both forms have the same persistent buffers, so either may follow the other in the middle of a
//   step. A bucket is reduced by the same instructions in both, so the bits do not depend on which
//   form ran. In the recorded step no call of the host falls between the beginning and the end of a
//   reduction: wherever the host leaves, a bucket of the micro-step is either reduced, or its
//   gradients are where the host put them. Compiling checks this.
//
// Cost: a fragment for each bucket, and for each kind of micro-step that reduces alike; the
// recorded step is linear in the calls of a step, of which only a few micro-steps are compiled when
// they repeat (ADR 23). Sources: ZeRO's hooks gather and release by module in the order that the
// last step showed (Rajbhandari et al., SC 2021, and DeepSpeed's parameter coordinator); here the
// trace is compiled instead of followed.
#include "compile/delegate.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/program/builder.h"
#include "core/program/mesh.h"
#include "optim/optimizer.h"
#include "zero/gather.h"
#include "zero/init.h"
#include "zero/matrix_update.h"
#include "zero/reduce.h"
#include "zero/step_buffers.h"
#include "zero/update.h"

namespace ds {
namespace {

std::string hash_of(const DelegatePlan& plan, const Config& config) {
  Hash128 hash;
  for (ParamId p : plan.params.ids()) {
    hash.update(plan.params[p].name + plan.types[p].text() +
                (plan.zero.trained.frozen[p] ? " frozen" : "") +
                fmt::format(" group {}", plan.zero.trained.group[p]));
  }
  hash.update(config.shared_text());
  for (const Bucket& b : plan.zero.layout.buckets)
    hash.update(fmt::format("{} {}", b.name, b.numel));
  return hash.hex();
}

// What follows from plan.zero: places for gradients, the programs that every step needs.
void compile_always(DelegatePlan& plan, const Config& config, const Machine& machine) {
  plan.grads.resize(plan.zero.buckets.size());
  for (BucketId b : plan.grads.ids()) {
    if (!plan.zero.trains(b) || plan.grads[b].exists()) continue;
    const Bucket& bucket = plan.zero.layout.buckets[b];
    plan.grads[b] = plan.zero.add(Holds::lease, bucket.name + ".lease_grad", config.compute,
                                  bucket.numel, Tier::device);
  }
  plan.hash = hash_of(plan, config);
  auto build = [&](const char* name, auto&& emit) {
    StepBuffers buffers;
    ProgramBuilder builder = begin_program(plan.zero, name, 1, buffers);
    emit(builder);
    Program program = builder.take();
    finish_program(program, plan.zero, config, buffers, machine,
                   {.prefetch = config.zero.overlap_comm, .verify_passes = true});
    return program;
  };
  plan.init = build("init", [&](ProgramBuilder& b) {
    emit_init(b, plan.zero, IdVector<ParamId, Parameter>(plan.params.size()));
  });
  plan.refresh = build("refresh", [&](ProgramBuilder& b) { emit_refresh(b, plan.zero); });
  plan.update = build("update", [&](ProgramBuilder& b) { emit_update(b, plan.zero, config); });
}

}  // namespace

DelegatePlan compile_delegate(const Config& config, const IdVector<ParamId, ParamSpec>& params,
                              const IdVector<ParamId, Shape>& shapes, int rank, const Mesh& mesh,
                              const Machine& machine) {
  DelegatePlan plan;
  plan.params = params;
  IdVector<ParamId, std::string> names;
  for (const ParamSpec& p : params) names.push_back(p.name);
  IdVector<ParamId, size_t> dims;
  for (const Shape& shape : shapes) dims.push_back(shape.rank());
  IdVector<ParamId, char> frozen = frozen_by_name(config, names);
  const IdVector<ParamId, int32_t> groups = groups_by_name(config, names, dims);
  for (ParamId p : params.ids()) {
    plan.params[p].frozen = frozen[p] != 0;
    plan.params[p].group = groups[p];
    set_matrix(config.optimizer, plan.params[p], shapes[p]);
  }
  plan.zero = make_zero_plan(config, plan.params, rank, mesh, machine);
  if (std::string note = matrix_updates_note(plan.zero); !note.empty())
    plan.zero.notes.push_back(note);
  for (const Shape& shape : shapes) plan.types.push_back({config.compute, shape});
  for (BucketId b : plan.zero.buckets.ids()) {
    const Bucket& bucket = plan.zero.layout.buckets[b];
    const BucketState& state = plan.zero.buckets[b];
    plan.lease.push_back(state.partitioned
                             ? plan.zero.add(Holds::lease, bucket.name + ".lease", config.compute,
                                             bucket.numel, Tier::device)
                             : state.full);
  }
  compile_always(plan, config, machine);
  return plan;
}

DelegatePlan recompile_delegate(const DelegatePlan& plan, const Config& config,
                                const Machine& machine, const TrainedParams& trained) {
  DelegatePlan next = plan;
  set_trained(next.zero, config, trained);
  compile_always(next, config, machine);
  return next;
}

Program gather_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine,
                        BucketId bucket) {
  StepBuffers buffers;
  ProgramBuilder b = begin_program(plan.zero, fmt::format("gather.{}", bucket), 1, buffers);
  for (Instr& in : gather_bucket(b, plan.zero, bucket, plan.lease[bucket])) b.emit(std::move(in));
  b.end_segment(Phase::gather);
  Program program = b.take();
  finish_program(program, plan.zero, config, buffers, machine, {.verify_passes = true});
  return program;
}

Program reduce_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine,
                        BucketId bucket, MicroId micro) {
  StepBuffers buffers;
  ProgramBuilder b =
      begin_program(plan.zero, fmt::format("reduce.{}.{}", bucket, micro), 1, buffers);
  // Stands for the host, which has written the bucket.
  b.emit(Op::grad, {flat(b.buffer(plan.grads[bucket]), plan.grads[bucket], 0, 1, Access::update)},
         {}, micro);
  b.end_segment(Phase::reduce);
  Program program = b.take();
  append_reduction(program, plan.zero, bucket, micro, plan.grads[bucket]);
  finish_program(program, plan.zero, config, buffers, machine, {.verify_passes = true});
  return program;
}

std::vector<Program> all_fragments(const DelegatePlan& plan, const Config& config,
                                   const Machine& machine) {
  std::vector<Program> all;
  for (BucketId b : plan.lease.ids()) {
    if (plan.zero.buckets[b].partitioned) all.push_back(gather_fragment(plan, config, machine, b));
    for (MicroId m(0); plan.zero.trains(b) && m < MicroId(config.accumulation); ++m) {
      if (reduced_alike(plan.zero, m) == m)
        all.push_back(reduce_fragment(plan, config, machine, b, m));
    }
  }
  return all;
}

}  // namespace ds
