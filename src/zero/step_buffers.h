#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "core/program/builder.h"
#include "core/program/program.h"
#include "zero/zero_plan.h"

namespace ds {

// Buffers that represent whole buckets in a program before ZeRO is inserted.
struct StepBuffers {
  // The whole parameters of each bucket: a transient placeholder if the bucket is partitioned, else
  // the persistent copy.
  IdVector<BucketId, BufferId> full;
  // The gradients of each micro-step and bucket, in the compute type, written by backward. A bucket
  // without a trained parameter has no buffer. If there are fewer entries than the step has
  // micro-steps, the first and the last entry are those of the step, and passes/repeat.cpp repeats
  // an entry in the middle, whose instructions must suit every micro-step in the middle.
  IdVector<MicroId, IdVector<BucketId, BufferId>> grads;
  // f64 norms of all granules of buckets that have states, bucket after bucket, in a step whose
  // gradients stay on their rank: with a form other than StepForm::reduced, or with
  // ZeroPlan::compression. None in other steps.
  BufferId own_norms;
};

// Begins a program with the engine's persistent buffers and, for every partitioned bucket, a
// placeholder.
ProgramBuilder begin_program(const ZeroPlan& plan, const std::string& name, int64_t bound,
                             StepBuffers& buffers);
// Adds the gradient buckets of one micro-step.
void add_grad_buffers(ProgramBuilder& builder, const ZeroPlan& plan, StepBuffers& buffers);
// Returns the number of elements of StepBuffers::own_norms: one norm for each granule of all
// buckets that have states.
int64_t own_norms_of(const ZeroPlan& plan);
// Returns the index in StepBuffers::own_norms of a bucket's first norm.
int64_t own_norm_first(const ZeroPlan& plan, BucketId bucket);
// Emits zeros for the elements of a gradient bucket that nothing else writes: its padding, and the
// parameters that receive no gradient, for which `comes` returns false.
void zero_holes(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket, BufferId grads,
                MicroId micro, const std::function<bool(ParamId param)>& comes);

// Returns all elements of a buffer.
StateRef all_of(const ProgramBuilder& builder, BufferId buffer);
// Returns elements of a buffer as a one-dimensional operand.
Operand flat_operand(const ProgramBuilder& builder, const StateRef& elements, Access access);
// Returns the step's scalars as an operand.
Operand scalars_operand(const ProgramBuilder& builder, const ZeroPlan& plan,
                        Access access = Access::read);
// Returns an operand for a parameter of the given shape at its place in a buffer that holds the
// whole bucket.
Operand param_operand(const ZeroPlan& plan, const ProgramBuilder& builder, BufferId bucket_buffer,
                      ParamId param, const Shape& shape, Access access);

}  // namespace ds
