// Problem. After its freeze 1-bit LAMB works like 1-bit Adam (update/onebit/adam.cpp), but a step
// of LAMB needs a trust ratio for each parameter, which cannot be computed from a frozen variance.
// Also, its momenta travel as one joint tensor with one scale for all parameters, regardless of
// buckets.
//
// Invariant. As in 1-bit Adam, every rank has the same whole momenta when a step begins. The joint
// tensor contains the parameters in their order without gaps, so its signs and scales do not depend
// on buckets or on the partition. Every rank computes the coefficients of parameters from numbers
// of all ranks, so they are equal on all ranks.
//
// Algorithm.
//  0. In the first step after the freeze, `lamb_scales` finds the factors that make the root mean
//     squares of all momenta equal, and the second moment that continues to change starts as a copy
//     of the frozen one.
//  1. `momentum` adds this rank's own gradient; the previous momenta are kept for step 4.
//  2. `scale_momentum` copies the momenta into the joint tensor, whose mean over ranks travels as
//     signs (update/onebit/signs.h).
//  3. `scale_momentum` copies them back. The padding that fills the tensor up to whole chunks is
//     no longer 0: the next step sends the values that came back, as DeepSpeed does.
//  4. `frozen_lamb_moments` derives gradients from the new and the previous momenta, the second
//     moment from these gradients, and the norms.
//  5. `frozen_lamb_ratios` computes ratios from the norms of all ranks; `lamb` updates with them.
//
// Cost. The joint tensor takes 4 bytes per element during the update, and the previous momenta take
// 4 bytes, or 4 / W at stage 1.
//
// Source. Li et al., "1-bit LAMB" (arXiv:2104.06069); DeepSpeed 0.19.6,
// runtime/fp16/onebit/lamb.py, whose numbers tests/training/onebit_recorded_test.cpp replays.
// docs/adr/0033.
#include "update/onebit/lamb.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/round.h"
#include "core/program/levels.h"
#include "core/program/signs.h"
#include "update/loss_and_norm.h"
#include "update/onebit/parts.h"
#include "update/onebit/signs.h"
#include "update/stretch.h"
#include "update/update.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

class CompressedLamb {
 public:
  CompressedLamb(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config)
      : builder_(builder), plan_(plan), config_(config) {}

  // Emits the part that only the first step after the freeze has: the factor of each parameter's
  // momentum is computed from the norms of all momenta, and the second moment that continues to
  // change starts as a copy of the frozen one. Every rank has the whole momenta, so nothing is
  // sent.
  void freeze() {
    StateRef norms = transient("momentum_squares", DS_DTYPE_F64, own_norms_of(plan_));
    std::vector<ElementRun> runs;
    std::vector<int64_t> numels;
    for_trained_buckets(plan_, [&](BucketId b) {
      const Bucket& bucket = plan_.layout.buckets[b];
      builder_.emit(Op::granule_norms,
                    {flat(momentum(b), Access::read),
                     flat(norms.slice(own_norm_first(plan_, b), bucket.numel / bucket.granule),
                          Access::write)});
      begin_fresh(b);
    });
    for (BucketId b : plan_.buckets.ids()) {
      if (!plan_.trains(b) && plan_.has_states(b)) begin_fresh(b);
    }
    for_params([&](ParamId p, const ParamPlace& place, BucketId b) {
      int64_t granule = plan_.layout.buckets[b].granule;
      int64_t first = own_norm_first(plan_, b) + place.begin / granule;
      runs.push_back({first, first + ceil_div(place.numel, granule), 0, p.number()});
      numels.push_back(place.numel);
    });
    builder_
        .emit(Op::lamb_scales,
              {flat(norms, Access::read), flat(plan_.coefficients(0), Access::write),
               flat(plan_.coefficients(2), Access::write)},
              {{"numels", numels}})
        .runs = runs;
  }

  // Emits a step after the freeze. The previous momentum is kept, because emit_moments() needs the
  // change of the momentum.
  void step() {
    std::map<BucketId, StateRef> before;
    for_trained_buckets(plan_, [&](BucketId b) {
      const StateRef& part = plan_.buckets[b].state(0);
      before[b] = transient(plan_.layout.buckets[b].name + ".before", DS_DTYPE_F32, part.numel);
      builder_.emit(Op::accumulate, {flat(part, Access::read), flat(before[b], Access::write)},
                    {{"beta", int64_t{0}}});
      emit_own_momentum(builder_, plan_, config_, b);
    });
    if (plan_.joint_buffer(kWorkerError).exists()) exchange();
    for_trained_buckets(plan_, [&](BucketId b) { emit_moments(b, before[b]); });
    const StateRef ratios = emit_frozen_ratios(builder_, plan_, config_.optimizer);
    for_trained_buckets(plan_, [&](BucketId b) { emit_steps(b, ratios); });
  }

 private:
  Operand flat(const StateRef& of, Access access) const {
    return flat_operand(builder_, of, access);
  }
  Operand scalars() const { return scalars_operand(builder_, plan_); }
  StateRef momentum(BucketId b) const { return all_of(builder_, plan_.buckets[b].state(0).buffer); }
  StateRef transient(const std::string& name, DType dtype, int64_t numel) {
    return {builder_.transient(name, dtype, numel, Tier::device), 0, numel};
  }

  // Calls f with each trained parameter that has elements, in the order of the parameters.
  template <typename F>
  void for_params(const F& f) const {
    for (ParamId p : plan_.layout.bucket_of.ids()) {
      const ParamPlace& place = plan_.layout.place(p);
      if (!plan_.trained.frozen[p] && place.numel > 0) f(p, place, plan_.layout.bucket_of[p]);
    }
  }
  template <typename F>
  void for_stretches(BucketId b, const F& f) const {
    for (const Stretch& s :
         stretches_of(plan_, config_, b, plan_.part_first(b), plan_.part_numel(b)))
      f(s);
  }

  // Starts the second moment that continues to change (state 2) as a copy of the frozen one (state
  // 1). Buckets of frozen parameters start theirs, too, because they may be trained again.
  void begin_fresh(BucketId b) {
    const int64_t numel = plan_.part_numel(b), most = stretch_size(plan_, config_, b);
    for (int64_t first = 0; first < numel; first += most) {
      auto part = [&](size_t state, Access access) {
        return flat(plan_.buckets[b].state(state).slice(first, std::min(most, numel - first)),
                    access);
      };
      builder_.emit(Op::accumulate, {part(1, Access::read), part(2, Access::write)},
                    {{"beta", int64_t{0}}});
    }
  }

  // Averages all momenta over ranks as one joint tensor. The padding at the end of the tensor,
  // which completes the last chunk, is kept from step to step like a momentum.
  void exchange() {
    const RankLevels& levels = plan_.classes.front().levels;
    const int64_t numel = joined_momenta(plan_).end, ranks = levels.ranks();
    const StateRef joined = transient("momenta", DS_DTYPE_F32, ranks * sign_chunk(numel, ranks));
    const StateRef end = joined.slice(numel, joined.numel - numel),
                   padding{plan_.joint_buffer(kFilling), 0, end.numel};
    auto move = [&](const StateRef& from, const StateRef& to) {
      if (from.numel == 0) return;
      builder_.emit(Op::accumulate, {flat(from, Access::read), flat(to, Access::write)},
                    {{"beta", int64_t{0}}});
    };
    copy(joined, false);
    move(padding, end);
    SignExchange signs(builder_, plan_, "momenta", levels, {{0, joined.numel}},
                       plan_.joint_buffer(kWorkerError), plan_.joint_buffer(kServerError));
    signs.send(joined);
    signs.answer();
    signs.receive(joined);
    copy(joined, true);
    move(end, padding);
  }

  // Scales the momenta and copies them to the joint tensor, or scales and copies them back.
  void copy(const StateRef& joined, bool back) {
    int64_t at = 0;
    for_params([&](ParamId p, const ParamPlace& place, BucketId b) {
      StateRef apart = momentum(b).slice(place.begin, place.numel),
               there = joined.slice(at, place.numel);
      at += place.numel;
      builder_.emit(Op::scale_momentum,
                    {flat(back ? there : apart, Access::read), scalars(),
                     flat(plan_.coefficients(0).slice(p.number(), 1), Access::read),
                     flat(back ? apart : there, back ? Access::update : Access::write)},
                    {{"inverse", static_cast<int64_t>(back)}});
    });
  }

  void emit_moments(BucketId b, const StateRef& before) {
    const BucketState& held = plan_.buckets[b];
    const StateRef norms = all_of(builder_, plan_.update_norms);
    int64_t granule = plan_.layout.buckets[b].granule;
    for_stretches(b, [&](const Stretch& s) {
      auto part = [&](const StateRef& of, Access access) {
        return flat(of.slice(s.first, s.count), access);
      };
      int64_t first = held.norm_first + s.first / granule;
      s.limit(
          builder_.emit(Op::frozen_lamb_moments,
                        {part(before, Access::read), part(held.state(0), Access::read),
                         part(held.state(1), Access::read), scalars(),
                         part(held.master.ref, Access::read), part(held.state(2), Access::update),
                         flat(norms.slice(3 * first, 3 * (s.count / granule)), s.written())}));
    });
  }

  void emit_steps(BucketId b, const StateRef& ratios) {
    const BucketState& held = plan_.buckets[b];
    int64_t granule = plan_.layout.buckets[b].granule;
    const Optimizer& optimizer = optimizer_of(config_.optimizer);
    for_stretches(b, [&](const Stretch& s) {
      auto part = [&](const StateRef& of, Access access) {
        return flat(of.slice(s.first, s.count), access);
      };
      int64_t first = first_ratio(plan_, b) + s.first / granule;
      s.limit(
          builder_.emit(optimizer.op,
                        {part(held.state(0), Access::read), part(held.state(1), Access::read),
                         flat(ratios.slice(first, s.count / granule), Access::read), scalars(),
                         part(held.master.ref, Access::update), part(held.param.ref, s.written())},
                        optimizer.attrs(config_.optimizer)));
    });
  }

  ProgramBuilder& builder_;
  const ZeroPlan& plan_;
  const Config& config_;
};

}  // namespace

ElementRun joined_momenta(const ZeroPlan& plan) {
  ElementRun all;
  for (ParamId p : plan.layout.bucket_of.ids()) {
    if (!plan.trained.frozen[p]) all.end += plan.layout.place(p).numel;
  }
  return all;
}

void emit_compressed_lamb(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                          StepForm form) {
  CompressedLamb lamb(builder, plan, config);
  if (form == StepForm::freezing) lamb.freeze();
  lamb.step();
}

}  // namespace ds
