#include "zero/step_buffers.h"

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace ds {

ProgramBuilder begin_program(const ZeroPlan& plan, const std::string& name, int64_t bound,
                             StepBuffers& buffers) {
  Program p;
  p.name = name;
  p.rank = plan.rank;
  p.mesh = plan.mesh;
  p.bound = bound;
  // Persistent buffers come first, so they have the same numbers in all programs.
  p.buffers = plan.memory.buffers;
  ProgramBuilder builder(std::move(p));
  for (BucketId b : plan.buckets.ids()) {
    const Bucket& bucket = plan.layout.buckets[b];
    buffers.full.push_back(
        plan.buckets[b].partitioned
            ? builder.transient(bucket.name + ".whole", bucket.dtype, bucket.numel, Tier::device)
            : plan.buckets[b].full);
  }
  return builder;
}

void add_grad_buffers(ProgramBuilder& builder, const ZeroPlan& plan, StepBuffers& buffers) {
  IdVector<BucketId, BufferId> grads;
  for (BucketId b : plan.layout.buckets.ids()) {
    const Bucket& bucket = plan.layout.buckets[b];
    grads.push_back(plan.trains(b) ? builder.transient(bucket.name + ".g", bucket.dtype,
                                                       bucket.numel, Tier::device)
                                   : BufferId());
  }
  buffers.grads.push_back(std::move(grads));
}

// The norms cover whole buckets, not this rank's parts, because the rank has all of its own
// gradients.
int64_t own_norm_first(const ZeroPlan& plan, BucketId bucket) {
  int64_t granules = 0;
  for (BucketId b(0); b < bucket; ++b) {
    const Bucket& has = plan.layout.buckets[b];
    if (!plan.buckets[b].grad.empty()) granules += has.numel / has.granule;
  }
  return granules;
}

int64_t own_norms_of(const ZeroPlan& plan) { return own_norm_first(plan, plan.buckets.past()); }

void zero_holes(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket, BufferId grads,
                MicroId micro, const std::function<bool(ParamId param)>& comes) {
  std::vector<Operand> holes;
  auto hole = [&](int64_t begin, int64_t numel) {
    holes.push_back(flat_operand(builder, {grads, begin, numel}, Access::write));
  };
  for (auto [begin, numel] : plan.layout.buckets[bucket].padding()) hole(begin, numel);
  for (const ParamPlace& place : plan.layout.buckets[bucket].params) {
    if (place.numel > 0 && !comes(place.param)) hole(place.begin, place.numel);
  }
  if (!holes.empty()) builder.emit(Op::zero, std::move(holes), {}, micro);
}

StateRef all_of(const ProgramBuilder& builder, BufferId buffer) {
  return {buffer, 0, builder.buffer(buffer).numel};
}

Operand flat_operand(const ProgramBuilder& builder, const StateRef& elements, Access access) {
  return flat(builder.buffer(elements.buffer), elements.buffer, elements.first, elements.numel,
              access);
}

Operand scalars_operand(const ProgramBuilder& builder, const ZeroPlan& plan, Access access) {
  return flat_operand(builder, all_of(builder, plan.memory.scalars), access);
}

Operand param_operand(const ZeroPlan& plan, const ProgramBuilder& builder, BufferId bucket_buffer,
                      ParamId param, const Shape& shape, Access access) {
  const ParamPlace& place = plan.layout.place(param);
  const Buffer& buffer = builder.buffer(bucket_buffer);
  return {bucket_buffer, place.begin * size_of(buffer.dtype), {buffer.dtype, shape}, access, false};
}

}  // namespace ds
