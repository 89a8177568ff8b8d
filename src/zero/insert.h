#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/program/builder.h"
#include "core/program/program.h"
#include "zero/policy.h"

namespace ds {

// Buffers that stand for whole buckets in a program before ZeRO is inserted.
struct StepBuffers {
  // Per bucket: whole parameters. A transient stand-in for partitioned buckets, the persistent copy
  // otherwise.
  IdVector<BucketId, BufferId> full;
  // Per micro-step and bucket: gradients in the compute type, written by backward; none where nothing is
  // trained. Where there are fewer than the accumulation has, the last of them is the last of the step, the
  // first its first, and one in the middle will be repeated (passes/repeat.cpp): those in the middle do the
  // same for whatever micro-step they are.
  IdVector<MicroId, IdVector<BucketId, BufferId>> grads;
};

// Program with the engine's persistent buffers and a stand-in for every bucket.
ProgramBuilder begin_program(const ZeroPlan& plan, const std::string& name, int64_t bound,
                             StepBuffers& buffers);
// Gradient buckets of one micro-step.
void add_grad_buffers(ProgramBuilder& builder, const ZeroPlan& plan, StepBuffers& buffers);
// Zeros of a gradient bucket where no gradient is written: its padding, and parameters of which none comes.
void zero_holes(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket, BufferId grads, MicroId micro,
                const std::function<bool(ParamId param)>& comes);
// Gathers `bucket`, of which this rank holds at `own` its part of a cut over `from` levels, up to its part of
// a cut over `to` of them, which is written to `target` (all of the buffer; elements, or their codes). What
// lies in between goes to transient buffers, or, where own is a part of target on the device, to its place
// there.
std::vector<Instr> gather_levels(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                                 const StateRef& own, int from, BufferId target, int to);
// Gathers all of a cut bucket into `target`, where weights are quantized as codes: each rank makes those of
// its own part, and all ranks decode the same.
std::vector<Instr> gather_bucket(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                                 BufferId target);
// Place of a parameter in a whole bucket.
Operand param_operand(const ZeroPlan& plan, const ProgramBuilder& builder, BufferId bucket_buffer,
                      ParamId param, const Shape& shape, Access access);

// Ranges: cuts the uses of each partitioned bucket where the elements of other buckets used in between exceed
// max_reuse_distance, or where max_live_parameters forces it (farthest next use first); an all_gather starts
// each range. Throws DS_ERROR_CONFIG when one instruction alone needs more than max_live_parameters.
void insert_gathers(Program& program, const ZeroPlan& plan, const ZeroConfig& zero,
                    const StepBuffers& buffers);

// After the last write of each gradient bucket: reduce_scatter or all_reduce into the accumulators, in the
// last micro-step followed by the granule norms of this rank's part. With overlap a reduction is issued only
// after the next gather, so that the gather can be prefetched across it.
void insert_reductions(Program& program, const ZeroPlan& plan, bool overlap, const StepBuffers& buffers);

// The same reduction of one bucket of gradients behind the last instruction (a fragment of delegate mode).
void append_reduction(Program& program, const ZeroPlan& plan, BucketId bucket, MicroId micro, BufferId grads);

// The first micro-step in which append_reduction says the same.
MicroId reduced_alike(const ZeroPlan& plan, MicroId micro);

// Elements that one update instruction covers at most: sub_group_size in whole file blocks of every element
// type.
int64_t update_group(const ZeroConfig& zero);

// The losses segment, behind the last backward: losses of all leaves on all ranks, which says how many leaves
// there are.
void emit_losses(ProgramBuilder& builder, const ZeroPlan& plan);
// The update segment: clip, optimizer, gather of what is not partitioned.
void emit_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config);

// The init segment: every rank draws its own granules; the whole model never exists on one rank.
void emit_init(ProgramBuilder& builder, const ZeroPlan& plan, const IdVector<ParamId, Init>& inits);
// Parameters from masters, after a checkpoint was loaded or a master was edited; errors of quantization begin
// again from 0.
void emit_refresh(ProgramBuilder& builder, const ZeroPlan& plan);

}  // namespace ds
