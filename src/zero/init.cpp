// An initial value depends only on the seed, the parameter and the element's index in the whole
// parameter, so the drawn model does not depend on the number of ranks, on buckets or on slices.
// Values are drawn in f32, into a draft of this rank's part, and rounded once, to the type of the
// master.
#include "zero/init.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/graph/param_slice.h"
#include "zero/gather.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// Draws the elements of one parameter that lie in this rank's part of the bucket into their place
// in `draft` (f32[part]).
void emit_draw(ProgramBuilder& b, const ZeroPlan& plan, BucketId bucket, const ParamPlace& place,
               const Parameter& param, const StateRef& draft) {
  const Init& init = param.init;
  int64_t part_first = plan.part_first(bucket);
  int64_t begin = std::max(place.begin, part_first);
  int64_t end = std::min(place.begin + place.numel, part_first + draft.numel);
  if (begin >= end || init.kind == "zeros") return;
  Attrs attrs{{"kind", init.kind},
              {"scale", init.scale},
              {"param", int64_t{place.param.number()}},
              {"begin", begin - place.begin}};
  if (param.slice) {
    std::vector<int64_t> runs;
    for (const ParamSlice::Run& run : param.slice->element_runs())
      runs.insert(runs.end(), {run.first, run.count});
    attrs.set("stride", param.slice->stride());
    attrs.set("runs", std::move(runs));
  }
  b.emit(Op::init_param,
         {scalars_operand(b, plan),
          flat_operand(b, draft.slice(begin - part_first, end - begin), Access::write)},
         std::move(attrs));
}

// Returns the values that parameters are rounded from: the masters or, for 0/1 Adam, the masters
// plus the steps that this rank has made since ranks last agreed.
StateRef computed_with(ProgramBuilder& builder, const ZeroPlan& plan, BucketId b) {
  const BucketState& s = plan.buckets[b];
  const HeldState* own_steps = s.find(kOwnSteps);
  if (!own_steps) return s.master.ref;
  StateRef sum{builder.transient(plan.layout.buckets[b].name + ".own", DS_DTYPE_F32,
                                 s.master.ref.numel, Tier::device),
               0, s.master.ref.numel};
  builder.emit(Op::accumulate,
               {flat_operand(builder, s.master.ref, Access::read),
                flat_operand(builder, sum, Access::write)},
               {{"beta", int64_t{0}}});
  builder.emit(Op::accumulate,
               {flat_operand(builder, own_steps->ref, Access::read),
                flat_operand(builder, sum, Access::update)},
               {{"beta", int64_t{1}}});
  return sum;
}

}  // namespace

void emit_init(ProgramBuilder& builder, const ZeroPlan& plan,
               const IdVector<ParamId, Parameter>& params) {
  auto zero_all = [&](BufferId buffer) {
    builder.emit(Op::zero, {flat_operand(builder, all_of(builder, buffer), Access::write)});
  };
  for (BucketId b : plan.buckets.ids()) {
    const Bucket& bucket = plan.layout.buckets[b];
    const BucketState& s = plan.buckets[b];
    int64_t part = plan.part_numel(b);
    StateRef draft{builder.transient(bucket.name + ".draft", DS_DTYPE_F32, part, Tier::device), 0,
                   part};
    builder.emit(Op::zero, {flat_operand(builder, draft, Access::write)});
    for (const ParamPlace& place : bucket.params) {
      emit_draw(builder, plan, b, place, params[place.param], draft);
    }
    DType kept = builder.buffer(s.master.ref.buffer).dtype;
    // In a frozen bucket, for example, the parameter is its own master, which then has the compute
    // type.
    bool cast = kept != DS_DTYPE_F32;
    std::vector<Operand> operands{flat_operand(builder, draft, Access::read),
                                  flat_operand(builder, s.master.ref, Access::write)};
    builder.emit(cast ? cast_instr(std::move(operands), kept)
                      : make_instr(Op::accumulate, std::move(operands), {{"beta", int64_t{0}}}));
    for (const HeldState& state : s.states) {
      zero_all(state.ref.buffer);
      if (state.scales.buffer.exists()) zero_all(state.scales.buffer);
    }
  }
  for (const HeldState& state : plan.joint) zero_all(state.ref.buffer);
  emit_refresh(builder, plan);
  builder.program().segments.back().phase = Phase::init;
}

void emit_refresh(ProgramBuilder& builder, const ZeroPlan& plan) {
  for (BucketId b : plan.buckets.ids()) {
    const BucketState& s = plan.buckets[b];
    if (!s.own_master()) {
      builder.emit(cast_instr({flat_operand(builder, computed_with(builder, plan, b), Access::read),
                               flat_operand(builder, s.param.ref, Access::write)},
                              plan.layout.buckets[b].dtype));
    }
    emit_param_gather(builder, plan, b);
    // An optimizer that compresses momentum keeps all of it on every rank. A checkpoint provides
    // only the part that the rank updates, so the other parts are gathered.
    const bool whole_momentum =
        !s.states.empty() && builder.buffer(s.state(0).buffer).numel > s.state(0).numel;
    if (whole_momentum) emit_momentum_gather(builder, plan, b);
  }
  builder.end_segment(Phase::refresh);
}

}  // namespace ds
