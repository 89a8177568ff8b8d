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

// Draws this rank's part of one parameter, if it has any, into its place in `draft` (f32[part]).
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
         {flat_operand(b, all_of(b, plan.scalars), Access::read),
          flat_operand(b, draft.slice(begin - part_first, end - begin), Access::write)},
         std::move(attrs));
}

// What parameters are rounded from: masters, with this rank's own steps since ranks last agreed.
StateRef computed_with(ProgramBuilder& builder, const ZeroPlan& plan, BucketId b) {
  const BucketState& s = plan.buckets[b];
  if (!s.own_steps.exists()) return s.master;
  StateRef sum{builder.transient(plan.layout.buckets[b].name + ".own", DS_DTYPE_F32, s.master.numel,
                                 Tier::device),
               0, s.master.numel};
  builder.emit(
      Op::accumulate,
      {flat_operand(builder, s.master, Access::read), flat_operand(builder, sum, Access::write)},
      {{"beta", int64_t{0}}});
  builder.emit(Op::accumulate,
               {flat_operand(builder, all_of(builder, s.own_steps), Access::read),
                flat_operand(builder, sum, Access::update)},
               {{"beta", int64_t{1}}});
  return sum;
}

}  // namespace

void emit_init(ProgramBuilder& builder, const ZeroPlan& plan,
               const IdVector<ParamId, Parameter>& params) {
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
    DType kept = builder.buffer(s.master.buffer).dtype;
    bool cast = kept != DS_DTYPE_F32;  // the master of what is frozen is its parameter
    std::vector<Operand> operands{flat_operand(builder, draft, Access::read),
                                  flat_operand(builder, s.master, Access::write)};
    builder.emit(cast ? cast_instr(std::move(operands), kept)
                      : make_instr(Op::accumulate, std::move(operands), {{"beta", int64_t{0}}}));
    auto zero_all = [&](BufferId buffer) {
      builder.emit(Op::zero, {flat_operand(builder, all_of(builder, buffer), Access::write)});
    };
    for (const StateRef& state : s.states) zero_all(state.buffer);
    for (const StateRef& scales : s.scales) zero_all(scales.buffer);
    for (BufferId own :
         {s.worker_error, s.server_error, s.own_steps, s.sent_error, s.answer_error}) {
      if (own.exists()) zero_all(own);
    }
    for (BufferId error : s.errors) zero_all(error);
  }
  for (BufferId joined : {plan.joined.worker_error, plan.joined.server_error, plan.joined.padding,
                          plan.joined.coefficients}) {
    if (joined.exists())
      builder.emit(Op::zero, {flat_operand(builder, all_of(builder, joined), Access::write)});
  }
  emit_refresh(builder, plan);
  builder.program().segments.back().phase = Phase::init;
}

void emit_refresh(ProgramBuilder& builder, const ZeroPlan& plan) {
  for (BucketId b : plan.buckets.ids()) {
    const BucketState& s = plan.buckets[b];
    if (s.master.buffer != s.param.buffer) {
      builder.emit(cast_instr({flat_operand(builder, computed_with(builder, plan, b), Access::read),
                               flat_operand(builder, s.param, Access::write)},
                              plan.compute));
    }
    emit_param_gather(builder, plan, b);
    const bool whole_momentum =
        !s.states.empty() && builder.buffer(s.states[0].buffer).numel > s.states[0].numel;
    if (whole_momentum) emit_momentum_gather(builder, plan, b);
  }
  builder.end_segment(Phase::refresh);
}

}  // namespace ds
