#include "update/update.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/element_run.h"
#include "core/program/state_codes.h"
#include "optim/optimizer.h"
#include "update/loss_and_norm.h"
#include "update/matrix_update.h"
#include "update/onebit/gradients.h"
#include "update/stretch.h"
#include "zero/gather.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// The whole mean gradient of each bucket. If the list is empty, updates read the sums in the
// accumulators.
using Means = IdVector<BucketId, StateRef>;

// Builds the operands of the updates of one stretch and emits the updates.
class StretchEmitter {
 public:
  StretchEmitter(ProgramBuilder& builder, const ZeroPlan& plan, const Stretch& stretch,
                 const Means& means)
      : b_(builder),
        plan_(plan),
        s_(stretch),
        state_(plan.buckets[stretch.bucket]),
        means_(means) {}

  // Returns the gradient of the stretch. `bf16_too` says that the update also reads bf16.
  Operand grad(bool bf16_too = false) const {
    if (means_.empty()) return gradient_of(b_, plan_, s_, bf16_too);
    const StateRef& whole = means_[s_.bucket];
    return of(whole.slice(plan_.part_first(s_.bucket), plan_.part_numel(s_.bucket)), Access::read);
  }
  Operand scalars() const { return scalars_operand(b_, plan_); }
  Operand master(Access access) const { return of(state_.master.ref, access); }
  Operand param() const { return of(state_.param.ref, written()); }
  Access written() const { return s_.written(); }
  // Appends as many canonical states as the instruction needs; the remaining states are for other
  // forms of a step. A state in codes is followed by its scales.
  void add_states(std::string_view op, std::vector<Operand>& operands, Access access) const {
    size_t count = 0;
    for (const OperandRule& rule : instruction(op).operands) {
      if (rule.role == Role::state) count += static_cast<size_t>(rule.most);
    }
    for (const HeldState& held : state_.states) {
      if (!held.row.canonical() || count == 0) break;
      operands.push_back(of(held.ref, access));
      --count;
      if (!held.scales.buffer.exists()) continue;
      operands.push_back(of_blocks(held.scales, access));
      --count;
    }
  }
  // Returns the stretch's elements of a buffer that has `each` elements for every granule and in
  // which this bucket starts at granule `begin`.
  Operand of_granules(const StateRef& all, int64_t begin, int64_t each, Access access) const {
    int64_t granule = plan_.layout.buckets[s_.bucket].granule;
    int64_t first = begin + s_.first / granule;
    return flat_operand(b_, all.slice(each * first, each * (s_.count / granule)), access);
  }
  Operand norms(const StateRef& all) const {
    return of_granules(all, state_.norm_first, 2, written());
  }
  Operand ratios(const StateRef& all) const {
    return of_granules(all, first_ratio(plan_, s_.bucket), 1, Access::read);
  }
  void emit(std::string_view op, std::vector<Operand> operands, Attrs attrs) const {
    s_.limit(b_.emit(op, std::move(operands), std::move(attrs)));
  }

 private:
  Operand of_blocks(const StateRef& scales, Access access) const {
    return flat_operand(b_, scales.slice(s_.first / kStateBlock, s_.count / kStateBlock), access);
  }
  Operand of(const StateRef& state, Access access) const {
    return flat_operand(b_, state.slice(s_.first, s_.count), access);
  }
  ProgramBuilder& b_;
  const ZeroPlan& plan_;
  const Stretch& s_;
  const BucketState& state_;
  const Means& means_;
};

// Emits the update of a stretch whose elements do not depend on each other, as one instruction.
void emit_elementwise(const StretchEmitter& s, const Optimizer& optimizer,
                      const OptimizerConfig& config) {
  const bool codes = config.states == DS_DTYPE_U8;
  const std::string& op = codes ? *optimizer.codes : optimizer.op;
  std::vector<Operand> operands{s.grad(true), s.scalars(), s.master(Access::update)};
  s.add_states(op, operands, Access::update);
  operands.push_back(s.param());
  s.emit(op, std::move(operands), optimizer.attrs(config));
}

// Emits the first half of an update with a trust ratio (LAMB), which updates the moments and writes
// the norms of parameter and step for each granule. The master changes only in emit_by_ratios().
void emit_norms(const StretchEmitter& s, const Optimizer& optimizer, const OptimizerConfig& config,
                const StateRef& norms) {
  std::vector<Operand> operands{s.grad(), s.scalars(), s.master(Access::read)};
  s.add_states(optimizer.by_norms->norms, operands, Access::update);
  operands.push_back(s.norms(norms));
  s.emit(optimizer.by_norms->norms, std::move(operands), optimizer.attrs(config));
}

// Emits the second half of an update with a trust ratio, which changes the master by the moments
// and the ratio of each granule.
void emit_by_ratios(const StretchEmitter& s, const Optimizer& optimizer,
                    const OptimizerConfig& config, const StateRef& ratios) {
  std::vector<Operand> operands;
  s.add_states(optimizer.op, operands, Access::read);
  operands.push_back(s.ratios(ratios));
  operands.insert(operands.end(), {s.scalars(), s.master(Access::update), s.param()});
  s.emit(optimizer.op, std::move(operands), optimizer.attrs(config));
}

// Calls `emit` with each stretch, in the order of the reductions: the last bucket comes first. So
// gradients that are still in memory are used while gradients in other tiers are loaded.
template <typename Emit>
void for_stretches(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                   const Means& means, const Emit& emit) {
  for (BucketId b = plan.buckets.last(); b.exists(); --b) {
    // emit_matrix_updates() updates these buckets.
    if (plan.layout.buckets[b].matrices) continue;
    for (const Stretch& stretch :
         stretches_of(plan, config, b, plan.part_first(b), plan.part_numel(b)))
      emit(StretchEmitter(builder, plan, stretch, means));
  }
}

void emit_optimizer(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                    const Means& means) {
  const Optimizer& optimizer = optimizer_of(config.optimizer);
  auto each = [&](const auto& emit) { for_stretches(builder, plan, config, means, emit); };
  if (!optimizer.by_norms) {
    each([&](const StretchEmitter& s) { emit_elementwise(s, optimizer, config.optimizer); });
    return emit_matrix_updates(builder, plan, config);
  }
  const StateRef norms = all_of(builder, plan.update_norms);
  each([&](const StretchEmitter& s) { emit_norms(s, optimizer, config.optimizer, norms); });
  const StateRef ratios = emit_ratios(builder, plan, config.optimizer);
  each([&](const StretchEmitter& s) { emit_by_ratios(s, optimizer, config.optimizer, ratios); });
}

}  // namespace

void emit_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                 BufferId own_norms) {
  Means means;
  if (own_norms.exists()) {
    means = emit_compressed_gradients(builder, plan, config, own_norms);
  } else {
    emit_clip(builder, plan, config);
  }
  emit_optimizer(builder, plan, config, means);
  for (BucketId b : plan.buckets.ids()) {
    if (plan.trains(b)) emit_param_gather(builder, plan, b);
  }
  builder.end_segment(Phase::update);
}

}  // namespace ds
