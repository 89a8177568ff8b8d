#include "zero/compressed_parts.h"

#include <cstdint>

#include "zero/step_buffers.h"
#include "zero/stretch.h"

namespace ds {

void emit_own_momentum(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                       BucketId b) {
  int64_t numel = plan.layout.buckets[b].numel;
  StateRef grad{plan.buckets[b].sum(), 0, numel},
      momentum{plan.buckets[b].states[0].buffer, 0, numel};
  for (const Stretch& s : stretches_of(plan, config, b, 0, numel)) {
    s.limit(builder.emit(Op::momentum,
                         {flat_operand(builder, grad.slice(s.first, s.count), Access::read),
                          flat_operand(builder, all_of(builder, plan.scalars), Access::read),
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
                         {part(held.states[0], Access::read), part(held.states[1], Access::read),
                          flat_operand(builder, all_of(builder, plan.scalars), Access::read),
                          part(held.master, Access::update), part(held.param, s.written())}));
  }
}

std::optional<SignExchange> exchange_of(ProgramBuilder& builder, const ZeroPlan& plan, BucketId b) {
  const BucketState& s = plan.buckets[b];
  if (!s.worker_error.exists()) return std::nullopt;
  return SignExchange(builder, plan, plan.layout.buckets[b].name, plan.levels(b),
                      places_of(plan.trained_params(b)), s.worker_error, s.server_error);
}

}  // namespace ds
