#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "core/program/builder.h"
#include "core/program/program.h"
#include "zero/policy.h"

namespace ds {

// Buffers that stand for whole buckets in a program before ZeRO is inserted.
struct StepBuffers {
  // Per bucket: whole parameters. A transient stand-in for partitioned buckets, the persistent copy
  // otherwise.
  IdVector<BucketId, BufferId> full;
  // Per micro-step and bucket: gradients in the compute type, written by backward; none where
  // nothing is trained. Where there are fewer than the accumulation has, the last of them is the
  // last of the step, the first its first, and one in the middle will be repeated
  // (passes/repeat.cpp): those in the middle do the same for whatever micro-step they are.
  IdVector<MicroId, IdVector<BucketId, BufferId>> grads;
  // Where gradients stay on their rank (StepForm::compressed): f64 norms of all granules, bucket
  // behind bucket. Otherwise none.
  BufferId own_norms;
};

// Program with the engine's persistent buffers and a stand-in for every bucket.
ProgramBuilder begin_program(const ZeroPlan& plan, const std::string& name, int64_t bound,
                             StepBuffers& buffers);
// Gradient buckets of one micro-step.
void add_grad_buffers(ProgramBuilder& builder, const ZeroPlan& plan, StepBuffers& buffers);
// The norms of the granules of all buckets that have states, and where those of a bucket begin: of
// own_norms.
int64_t own_norms_of(const ZeroPlan& plan);
int64_t own_norm_first(const ZeroPlan& plan, BucketId bucket);
// Zeros of a gradient bucket where no gradient is written: its padding, and parameters of which
// none comes.
void zero_holes(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket, BufferId grads,
                MicroId micro, const std::function<bool(ParamId param)>& comes);

// All elements of a buffer.
StateRef all_of(const ProgramBuilder& builder, BufferId buffer);
// Elements of a buffer as a flat operand.
Operand flat_operand(const ProgramBuilder& builder, const StateRef& elements, Access access);
// Place of a parameter in a whole bucket.
Operand param_operand(const ZeroPlan& plan, const ProgramBuilder& builder, BufferId bucket_buffer,
                      ParamId param, const Shape& shape, Access access);

}  // namespace ds
