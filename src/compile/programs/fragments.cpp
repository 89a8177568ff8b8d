// Fragments of a delegate's step that runs call by call. Each gathers or reduces one bucket.
#include <fmt/core.h>

#include <utility>

#include "compile/plan.h"
#include "compile/programs/programs.h"
#include "core/program/builder.h"
#include "zero/gather.h"
#include "zero/reduce.h"
#include "zero/step_buffers.h"

namespace ds {

Program make_gather(const Making& making, const ProgramKey& key) {
  const Plan& plan = making.plan;
  StepBuffers buffers;
  ProgramBuilder b = begin_program(plan.zero, fmt::format("gather.{}", key.bucket), 1, buffers);
  for (Instr& in : gather_bucket(b, plan.zero, key.bucket, plan.host.lease[key.bucket]))
    b.emit(std::move(in));
  b.end_segment(Phase::gather);
  return finished(making, b, buffers);
}

Program make_reduce(const Making& making, const ProgramKey& key) {
  const Plan& plan = making.plan;
  const bool first = key.micro == MicroId(0);
  const BufferId grads = (first ? plan.host.first_grads : plan.host.grads)[key.bucket];
  StepBuffers buffers;
  ProgramBuilder b = begin_program(
      plan.zero, fmt::format("reduce.{}.{}of{}", key.bucket, key.micro, key.micros), 1, buffers);
  // This instruction represents the host, which has written the bucket.
  b.emit(Op::grad, {flat(b.buffer(grads), grads, 0, 1, Access::update)}, {}, key.micro);
  // The accumulator may hold anything in its padding, the host's own buffer holds zeros there.
  if (grads != plan.host.grads[key.bucket])
    zero_holes(b, plan.zero, key.bucket, grads, key.micro, [](ParamId) { return true; });
  b.end_segment(Phase::reduce);
  Program program = b.take();
  append_reduction(program, plan.zero, key.bucket, {key.micro, key.micros}, grads);
  finish_program(program, plan.zero, making.config, buffers, making.machine, making.finish);
  return program;
}

}  // namespace ds
