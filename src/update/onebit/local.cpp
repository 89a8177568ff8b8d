// Problem. 0/1 Adam not only makes messages smaller but leaves most of them out. Before its freeze
// the variance is updated in fewer and fewer steps, and only these reduce gradients; in the others
// gradients travel as signs and change only the momentum. After the freeze, ranks step
// independently and agree at intervals that grow. In between their parameters differ, as nowhere
// else in libds.
//
// Invariant. Masters are the parameters that all ranks last agreed on, so they are equal on all
// ranks in every step. own_steps is the sum of a rank's own steps since then. A rank computes with
// its compute copy, which is master + own_steps, rounded. So code that reads masters sees one
// model, and ranks do not differ after they have agreed.
//
// Algorithm. The form of a step depends only on the number of updates (optim/optimizer.cpp), so all
// ranks choose the same form.
//  gradients: `own_gradient`, its mean over ranks as signs, `momentum`, `frozen_adam`.
//  local: `local_adam`; nothing is sent.
//  compressed: `local_adam`, which leaves own_steps times the root of the variance; the mean of
//    these products over ranks, as signs; `synced_adam`: the momentum becomes the mean divided by
//    the sum of the rates of these steps, the mean step is added to masters, and own_steps becomes
//    0.
//  freezing: the first compressed step. Its errors start at 0, because the stored ones belong to
//    gradients.
//
// Cost. Every rank needs all states in every step, so ZeRO cannot partition them. own_steps and
// errors take 8 + 4 / W bytes per element. Messages are those of update/onebit/signs.h; a local
// step sends only losses and one number for the norm.
//
// Source. Lu et al., "Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam"
// (arXiv:2202.06009); DeepSpeed 0.19.6, runtime/fp16/onebit/zoadam.py, whose numbers
// tests/training/onebit_recorded_test.cpp replays. docs/adr/0033.
#include "update/onebit/local.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "update/onebit/parts.h"
#include "update/onebit/signs.h"
#include "update/stretch.h"
#include "update/update.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

class LocalUpdate {
 public:
  LocalUpdate(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config)
      : builder_(builder), plan_(plan), config_(config) {}

  // Emits a step before the freeze whose gradients travel as signs. The variance does not change.
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
        // receive() writes only the tensors. The elements between them must not be NaN.
        builder_.emit(Op::zero, {flat(mean, Access::write)});
        one.exchange->receive(mean);
      }
      emit_momentum(one.bucket, mean);
      emit_frozen_adam(builder_, plan_, config_, one.bucket);
    }
  }

  // Emits a step without communication: each rank updates its parameters alone.
  void local() {
    for_trained_buckets(plan_, [&](BucketId b) { emit_local(b, false); });
  }

  // Emits a step after which all ranks agree: each rank makes its own step, then the sums of own
  // steps since the last agreement are averaged as signs. `first` says that this is the first step
  // of this kind, in which errors are reset to 0.
  void synchronise(bool first) {
    std::vector<Sent> all;
    for_trained_buckets(plan_, [&](BucketId b) {
      for (std::string_view name : {kWorkerError, kServerError}) {
        const BufferId error = state(b).buffer_of(name);
        if (first && error.exists())
          builder_.emit(Op::zero, {flat(all_of(builder_, error), Access::write)});
      }
      emit_local(b, true);
      all.push_back(
          {b, exchange_of(builder_, plan_, b), all_of(builder_, state(b).buffer_of(kOwnSteps))});
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
  Operand scalars() const { return scalars_operand(builder_, plan_); }
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
                             flat(state(b).state(0).slice(s.first, s.count), Access::update)},
                            attrs));
    });
  }

  void emit_local(BucketId b, bool sum) {
    const BucketState& held = state(b);
    const StateRef steps = all_of(builder_, held.buffer_of(kOwnSteps)),
                   grad = all_of(builder_, held.sum());
    for_stretches(b, [&](const Stretch& s) {
      auto part = [&](const StateRef& of, Access access) {
        return flat(of.slice(s.first, s.count), access);
      };
      std::vector<Operand> operands{part(grad, Access::read),
                                    part(held.state(1), Access::read),
                                    scalars(),
                                    part(held.master.ref, Access::read),
                                    part(held.state(0), Access::update),
                                    part(steps, Access::update)};
      if (!sum) operands.push_back(part(held.param.ref, s.written()));
      Attrs attrs = ranks();
      attrs.set("sum", static_cast<int64_t>(sum));
      s.limit(builder_.emit(Op::local_adam, operands, attrs));
    });
  }

  void emit_synced(BucketId b) {
    const BucketState& held = state(b);
    const StateRef steps = all_of(builder_, held.buffer_of(kOwnSteps));
    for_stretches(b, [&](const Stretch& s) {
      auto part = [&](const StateRef& of, Access access) {
        return flat(of.slice(s.first, s.count), access);
      };
      s.limit(builder_.emit(
          Op::synced_adam,
          {part(held.state(1), Access::read), scalars(), part(held.state(0), Access::update),
           part(steps, Access::update), part(held.master.ref, Access::update),
           part(held.param.ref, s.written())}));
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
