#include "update/onebit/parts.h"

#include <cstdint>

#include "update/stretch.h"
#include "zero/step_buffers.h"

namespace ds {

void emit_own_momentum(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                       BucketId b) {
  // The update covers the whole bucket and not only this rank's part, because the momenta of all
  // ranks are averaged next.
  int64_t numel = plan.layout.buckets[b].numel;
  StateRef grad{plan.buckets[b].sum(), 0, numel},
      momentum{plan.buckets[b].state(0).buffer, 0, numel};
  for (const Stretch& s : stretches_of(plan, config, b, 0, numel)) {
    s.limit(builder.emit(Op::momentum,
                         {flat_operand(builder, grad.slice(s.first, s.count), Access::read),
                          scalars_operand(builder, plan),
                          flat_operand(builder, momentum.slice(s.first, s.count), Access::update)},
                         {{"ranks", int64_t{plan.mesh.data_size()}}}));
  }
}

void emit_frozen_adam(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                      BucketId b) {
  const BucketState& held = plan.buckets[b];
  for (const Stretch& s : stretches_of(plan, config, b, plan.part_first(b), plan.part_numel(b))) {
    auto part = [&](const StateRef& of, Access access) {
      return flat_operand(builder, of.slice(s.first, s.count), access);
    };
    s.limit(builder.emit(Op::frozen_adam,
                         {part(held.state(0), Access::read), part(held.state(1), Access::read),
                          scalars_operand(builder, plan), part(held.master.ref, Access::update),
                          part(held.param.ref, s.written())}));
  }
}

std::optional<SignExchange> exchange_of(ProgramBuilder& builder, const ZeroPlan& plan, BucketId b) {
  const BucketState& s = plan.buckets[b];
  const BufferId worker = s.buffer_of(kWorkerError);
  if (!worker.exists()) return std::nullopt;
  return SignExchange(builder, plan, plan.layout.buckets[b].name, plan.levels(b),
                      places_of(plan.trained_params(b)), worker, s.buffer_of(kServerError));
}

}  // namespace ds
