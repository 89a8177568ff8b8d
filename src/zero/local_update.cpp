// Problem. 0/1 Adam saves more than the size of messages: it leaves most of them out. Before its
// freeze the variance is updated in fewer and fewer steps, and only these reduce gradients; in the
// others gradients go as signs and move the momentum alone. Behind it ranks step by themselves and
// agree at intervals that grow. Between two of these their parameters differ, which nothing else in
// libds does.
//
// Invariant. Masters are the parameters that all ranks agreed on, equal on all of them in every
// step. A rank computes with master + own_steps, the sum of its own steps since then; the compute
// copy is that sum, rounded. So whatever reads masters sees one model, and agreeing leaves no
// difference between ranks.
//
// Algorithm. Which form a step has says the number of updates alone (optim/optimizer.cpp), on all
// ranks alike.
//  gradients: `own_gradient`, its mean over ranks as signs, `momentum`, `frozen_adam`.
//  local: `local_adam`; nothing is sent.
//  compressed: `local_adam`, which leaves the sum times the root of the variance; its mean over
//  ranks as
//    signs; `synced_adam`: momentum is that mean, divided by the rates that are in it, masters take
//    it up, and own_steps is 0.
//  freezing: the first of these, whose errors begin at 0: those before it were of gradients.
//
// Cost. Every rank needs all states whole in every step, which ZeRO's stages would cut; own_steps
// and errors take 8 bytes an element and 4 / W. Messages are those of zero/sign_exchange.h, none in
// a local step but losses and one number of the norm.
//
// Source. Lu et al., "Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam"
// (arXiv:2202.06009); DeepSpeed 0.19.6, runtime/fp16/onebit/zoadam.py, whose numbers
// tests/training/onebit_recorded_test.cpp replays. docs/adr/0033.
#include "zero/local_update.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "zero/compressed_parts.h"
#include "zero/sign_exchange.h"
#include "zero/step_buffers.h"
#include "zero/stretch.h"
#include "zero/update.h"

namespace ds {
namespace {

class LocalUpdate {
 public:
  LocalUpdate(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config)
      : builder_(builder), plan_(plan), config_(config) {}

  void gradients() {
    std::vector<Sent> all;
    for_trained_buckets(plan_, [&](BucketId b) {
      StateRef own = whole(b, ".own_gradient");
      builder_.emit(Op::own_gradient,
                    {flat(all_of(builder_, state(b).sum()), Access::read), scalars(),
                     flat(own, Access::write)},
                    ranks());
      all.push_back({b, exchange_of(builder_, plan_, b), own});
      if (all.back().exchange) all.back().exchange->send(own);
    });
    answer(all);
    for (Sent& one : all) {
      StateRef mean = one.source;
      if (one.exchange) {
        mean = whole(one.bucket, ".mean_gradient");
        builder_.emit(Op::zero, {flat(mean, Access::write)});
        one.exchange->receive(mean);
      }
      emit_momentum(one.bucket, mean);
      emit_frozen_adam(builder_, plan_, config_, one.bucket);
    }
  }

  void local() {
    for_trained_buckets(plan_, [&](BucketId b) { emit_local(b, false); });
  }

  void synchronise(bool first) {
    std::vector<Sent> all;
    for_trained_buckets(plan_, [&](BucketId b) {
      for (BufferId error : {state(b).worker_error, state(b).server_error}) {
        if (first && error.exists())
          builder_.emit(Op::zero, {flat(all_of(builder_, error), Access::write)});
      }
      emit_local(b, true);
      all.push_back({b, exchange_of(builder_, plan_, b), all_of(builder_, state(b).own_steps)});
      if (all.back().exchange) all.back().exchange->send(all.back().source);
    });
    answer(all);
    for (Sent& one : all) {
      if (one.exchange) one.exchange->receive(one.source);
      emit_synced(one.bucket);
    }
  }

 private:
  struct Sent {
    BucketId bucket;
    std::optional<SignExchange> exchange;
    StateRef source;
  };

  const BucketState& state(BucketId b) const { return plan_.buckets[b]; }
  Operand flat(const StateRef& of, Access access) const {
    return flat_operand(builder_, of, access);
  }
  Operand scalars() const { return flat(all_of(builder_, plan_.scalars), Access::read); }
  Attrs ranks() const { return {{"ranks", int64_t{plan_.mesh.data_size()}}}; }

  StateRef whole(BucketId b, const char* name) {
    const Bucket& bucket = plan_.layout.buckets[b];
    return {builder_.transient(bucket.name + name, DS_DTYPE_F32, bucket.numel, Tier::device), 0,
            bucket.numel};
  }

  template <typename F>
  void for_stretches(BucketId b, const F& f) const {
    for (const Stretch& s : stretches_of(plan_, config_, b, 0, plan_.layout.buckets[b].numel)) f(s);
  }
  static void answer(std::vector<Sent>& all) {
    for (Sent& one : all) {
      if (one.exchange) one.exchange->answer();
    }
  }

  void emit_momentum(BucketId b, const StateRef& mean) {
    for_stretches(b, [&](const Stretch& s) {
      Attrs attrs = ranks();
      attrs.set("mean", int64_t{1});
      s.limit(builder_.emit(Op::momentum,
                            {flat(mean.slice(s.first, s.count), Access::read), scalars(),
                             flat(state(b).states[0].slice(s.first, s.count), Access::update)},
                            attrs));
    });
  }

  void emit_local(BucketId b, bool sum) {
    const BucketState& held = state(b);
    const StateRef steps = all_of(builder_, held.own_steps), grad = all_of(builder_, held.sum());
    for_stretches(b, [&](const Stretch& s) {
      auto part = [&](const StateRef& of, Access access) {
        return flat(of.slice(s.first, s.count), access);
      };
      std::vector<Operand> operands{part(grad, Access::read),
                                    part(held.states[1], Access::read),
                                    scalars(),
                                    part(held.master, Access::read),
                                    part(held.states[0], Access::update),
                                    part(steps, Access::update)};
      if (!sum) operands.push_back(part(held.param, s.written()));
      Attrs attrs = ranks();
      attrs.set("sum", static_cast<int64_t>(sum));
      s.limit(builder_.emit(Op::local_adam, operands, attrs));
    });
  }

  void emit_synced(BucketId b) {
    const BucketState& held = state(b);
    const StateRef steps = all_of(builder_, held.own_steps);
    for_stretches(b, [&](const Stretch& s) {
      auto part = [&](const StateRef& of, Access access) {
        return flat(of.slice(s.first, s.count), access);
      };
      s.limit(builder_.emit(Op::synced_adam,
                            {part(held.states[1], Access::read), scalars(),
                             part(held.states[0], Access::update), part(steps, Access::update),
                             part(held.master, Access::update), part(held.param, s.written())}));
    });
  }

  ProgramBuilder& builder_;
  const ZeroPlan& plan_;
  const Config& config_;
};

}  // namespace

void emit_local_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                       StepForm form) {
  LocalUpdate update(builder, plan, config);
  if (form == StepForm::gradients) return update.gradients();
  if (form == StepForm::local) return update.local();
  update.synchronise(form == StepForm::freezing);
}

}  // namespace ds
