// Problem. 1-bit LAMB goes on behind its freeze as 1-bit Adam does (zero/compressed_update.cpp),
// but a step of LAMB needs a trust ratio of each parameter, which no longer follows from a variance
// that stands. And its momenta go as one tensor with one scale for all parameters, whatever buckets
// they lie in.
//
// Invariant. As there: when a step begins, every rank has the same whole momenta. The one tensor
// has the parameters in their order without gaps, so that its signs and scales depend on no bucket
// and no partition. The coefficients of parameters are made on every rank from numbers of all
// ranks, and are equal on all.
//
// Algorithm.
//  0. In the first step behind the freeze, `lamb_scales`: what makes the root mean squares of all
//  momenta
//     equal; the second moment that goes on begins as the one that stands.
//  1. `momentum` with this rank's own gradient; the momenta of before are kept for 4.
//  2. `scale_momentum` puts them into the one tensor; its mean over ranks as signs
//  (zero/sign_exchange.h).
//  3. `scale_momentum` takes them out again. What fills the tensor up to whole chunks is not 0 from
//  then on:
//     the next step sends what came back, as DeepSpeed does.
//  4. `frozen_lamb_moments`: gradients as momenta tell them, the second moment from these, and
//  norms.
//  5. `frozen_lamb_ratios`, on the norms of all ranks; `lamb`, with these ratios.
//
// Cost. The one tensor takes 4 bytes an element while a step updates, the momenta of before 4 / W
// at stage 1.
//
// Source. Li et al., "1-bit LAMB" (arXiv:2104.06069); DeepSpeed 0.19.6,
// runtime/fp16/onebit/lamb.py, whose numbers tests/training/onebit_recorded_test.cpp replays.
// docs/adr/0033.
#include "zero/compressed_lamb.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/round.h"
#include "core/program/levels.h"
#include "core/program/signs.h"
#include "zero/compressed_parts.h"
#include "zero/loss_and_norm.h"
#include "zero/sign_exchange.h"
#include "zero/step_buffers.h"
#include "zero/stretch.h"
#include "zero/update.h"

namespace ds {
namespace {

class CompressedLamb {
 public:
  CompressedLamb(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config)
      : builder_(builder), plan_(plan), config_(config) {}

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
              {flat(norms, Access::read), flat(coefficients(0), Access::write),
               flat(coefficients(2), Access::write)},
              {{"numels", numels}})
        .runs = runs;
  }

  void step() {
    std::map<BucketId, StateRef> before;
    for_trained_buckets(plan_, [&](BucketId b) {
      const StateRef& part = plan_.buckets[b].states[0];
      before[b] = transient(plan_.layout.buckets[b].name + ".before", DS_DTYPE_F32, part.numel);
      builder_.emit(Op::accumulate, {flat(part, Access::read), flat(before[b], Access::write)},
                    {{"beta", int64_t{0}}});
      emit_own_momentum(builder_, plan_, config_, b);
    });
    if (plan_.joined.worker_error.exists()) exchange();
    for_trained_buckets(plan_, [&](BucketId b) { emit_moments(b, before[b]); });
    const StateRef ratios = emit_frozen_ratios(builder_, plan_, config_);
    for_trained_buckets(plan_, [&](BucketId b) { emit_steps(b, ratios); });
  }

 private:
  Operand flat(const StateRef& of, Access access) const {
    return flat_operand(builder_, of, access);
  }
  Operand scalars() const { return flat(all_of(builder_, plan_.scalars), Access::read); }
  StateRef momentum(BucketId b) const {
    return all_of(builder_, plan_.buckets[b].states[0].buffer);
  }
  StateRef coefficients(int64_t kind) const {
    return plan_.joined.kind(kind, static_cast<int64_t>(plan_.layout.bucket_of.size()));
  }
  StateRef transient(const std::string& name, DType dtype, int64_t numel) {
    return {builder_.transient(name, dtype, numel, Tier::device), 0, numel};
  }

  // Trained ones that have elements, in their order.
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

  // The second moment that goes on, also of what is frozen now: it may be trained again.
  void begin_fresh(BucketId b) {
    const int64_t numel = plan_.part_numel(b), most = stretch_size(plan_, config_, b);
    for (int64_t first = 0; first < numel; first += most) {
      auto part = [&](size_t state, Access access) {
        return flat(plan_.buckets[b].states[state].slice(first, std::min(most, numel - first)),
                    access);
      };
      builder_.emit(Op::accumulate, {part(1, Access::read), part(2, Access::write)},
                    {{"beta", int64_t{0}}});
    }
  }

  void exchange() {
    const RankLevels& levels = plan_.classes.front().levels;
    const int64_t numel = joined_momenta(plan_).end, ranks = levels.ranks();
    const StateRef joined = transient("momenta", DS_DTYPE_F32, ranks * sign_chunk(numel, ranks));
    const StateRef end = joined.slice(numel, joined.numel - numel),
                   padding{plan_.joined.padding, 0, end.numel};
    auto move = [&](const StateRef& from, const StateRef& to) {
      if (from.numel == 0) return;
      builder_.emit(Op::accumulate, {flat(from, Access::read), flat(to, Access::write)},
                    {{"beta", int64_t{0}}});
    };
    copy(joined, false);
    move(padding, end);
    SignExchange signs(builder_, plan_, "momenta", levels, {{0, joined.numel}},
                       plan_.joined.worker_error, plan_.joined.server_error);
    signs.send(joined);
    signs.answer();
    signs.receive(joined);
    copy(joined, true);
    move(end, padding);
  }

  // Momenta to the one tensor, or back.
  void copy(const StateRef& joined, bool back) {
    int64_t at = 0;
    for_params([&](ParamId p, const ParamPlace& place, BucketId b) {
      StateRef apart = momentum(b).slice(place.begin, place.numel),
               there = joined.slice(at, place.numel);
      at += place.numel;
      builder_.emit(Op::scale_momentum,
                    {flat(back ? there : apart, Access::read), scalars(),
                     flat(coefficients(0).slice(p.number(), 1), Access::read),
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
      s.limit(builder_.emit(Op::frozen_lamb_moments,
                            {part(before, Access::read), part(held.states[0], Access::read),
                             part(held.states[1], Access::read), scalars(),
                             part(held.master, Access::read), part(held.states[2], Access::update),
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
      s.limit(builder_.emit(optimizer.op,
                            {part(held.states[0], Access::read), part(held.states[1], Access::read),
                             flat(ratios.slice(first, s.count / granule), Access::read), scalars(),
                             part(held.master, Access::update), part(held.param, s.written())},
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
