#include "compile/delegate.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/program/builder.h"
#include "zero/insert.h"

namespace ds {
namespace {

std::string hash_of(const DelegatePlan& plan, const Config& config) {
  Hash128 hash;
  for (ParamId p : plan.params.ids()) {
    hash.update(plan.params[p].name + plan.types[p].text() + (plan.zero.frozen[p] ? " frozen" : ""));
  }
  hash.update(config.shared_text());
  for (const Bucket& b : plan.zero.layout.buckets) hash.update(fmt::format("{} {}", b.name, b.numel));
  return hash.hex();
}

// What follows from plan.zero: places for gradients, the programs that every step needs.
void compile_always(DelegatePlan& plan, const Config& config, const Machine& machine) {
  plan.grads.resize(plan.zero.buckets.size());
  for (BucketId b : plan.grads.ids()) {
    if (!plan.zero.trains(b) || plan.grads[b].exists()) continue;
    const Bucket& bucket = plan.zero.layout.buckets[b];
    plan.grads[b] =
        plan.zero.add(Holds::lease, bucket.name + ".lease_grad", config.compute, bucket.numel, Tier::device);
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
    emit_init(b, plan.zero, IdVector<ParamId, Init>(plan.params.size()));
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
  IdVector<ParamId, char> frozen = frozen_by_name(config, names);
  for (ParamId p : params.ids()) plan.params[p].frozen = frozen[p] != 0;
  plan.zero = make_zero_plan(config, plan.params, rank, mesh, machine);
  for (const Shape& shape : shapes) plan.types.push_back({config.compute, shape});
  for (BucketId b : plan.zero.buckets.ids()) {
    const Bucket& bucket = plan.zero.layout.buckets[b];
    const BucketState& state = plan.zero.buckets[b];
    plan.lease.push_back(state.partitioned ? plan.zero.add(Holds::lease, bucket.name + ".lease",
                                                           config.compute, bucket.numel, Tier::device)
                                           : state.full);
  }
  compile_always(plan, config, machine);
  return plan;
}

DelegatePlan recompile_delegate(const DelegatePlan& plan, const Config& config, const Machine& machine,
                                const IdVector<ParamId, char>& frozen,
                                const IdVector<ParamId, int64_t>& missed) {
  DelegatePlan next = plan;
  set_frozen(next.zero, config, frozen, missed);
  compile_always(next, config, machine);
  return next;
}

Program gather_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine,
                        BucketId bucket) {
  StepBuffers buffers;
  ProgramBuilder b = begin_program(plan.zero, "gather", 1, buffers);
  for (Instr& in : gather_bucket(b, plan.zero, bucket, plan.lease[bucket])) b.emit(std::move(in));
  b.end_segment(Phase::gather);
  Program program = b.take();
  finish_program(program, plan.zero, config, buffers, machine, {.verify_passes = true});
  return program;
}

Program reduce_fragment(const DelegatePlan& plan, const Config& config, const Machine& machine,
                        BucketId bucket, MicroId micro) {
  StepBuffers buffers;
  ProgramBuilder b = begin_program(plan.zero, "reduce", 1, buffers);
  // Stands for the host, which has written the bucket.
  b.emit(Op::grad, {flat(b.buffer(plan.grads[bucket]), plan.grads[bucket], 0, 1, Access::update)}, {}, micro);
  b.end_segment(Phase::reduce);
  Program program = b.take();
  append_reduction(program, plan.zero, bucket, micro, plan.grads[bucket]);
  finish_program(program, plan.zero, config, buffers, machine, {.verify_passes = true});
  return program;
}

}  // namespace ds
