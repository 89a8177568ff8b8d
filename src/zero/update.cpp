#include "zero/update.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/program/element_run.h"
#include "optim/optimizer.h"
#include "zero/compressed_gradients.h"
#include "zero/gather.h"
#include "zero/loss_and_norm.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// What is trained of the elements [low, low + count) of a bucket, counted from `low`. Padding follows the
// parameter before it. by_param: each run is of one parameter and says which.
std::vector<ElementRun> update_runs(const ZeroPlan& plan, BucketId bucket, int64_t low, int64_t count,
                                    bool by_param) {
  std::vector<ElementRun> runs;
  const Bucket& b = plan.layout.buckets[bucket];
  for (size_t i = 0; i < b.params.size(); ++i) {
    ParamId param = b.params[i].param;
    int64_t next = i + 1 < b.params.size() ? b.params[i + 1].begin : b.numel,
            missed = plan.trained.missed[param], group = plan.trained.group[param];
    int64_t begin = std::max(b.params[i].begin - low, int64_t{0}), end = std::min(next - low, count);
    if (plan.trained.frozen[param] || begin >= end) continue;
    if (by_param) {
      runs.push_back({begin, end, missed, group, param.number(), begin + low - b.params[i].begin});
    } else if (!runs.empty() && runs.back().end == begin && runs.back().missed == missed &&
               runs.back().group == group) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end, missed, group});
    }
  }
  return runs;
}

// Of each bucket the whole mean gradient; empty: sums are in the accumulators.
using Means = IdVector<BucketId, StateRef>;

// Operands of updates of one stretch.
class StretchEmitter {
 public:
  StretchEmitter(ProgramBuilder& builder, const ZeroPlan& plan, const Stretch& stretch, const Means& means)
      : b_(builder), plan_(plan), s_(stretch), state_(plan.buckets[stretch.bucket]), means_(means) {}

  Operand grad() const {
    if (means_.empty()) return of({state_.sum(), state_.grad_first, s_.count}, Access::read);
    const StateRef& whole = means_[s_.bucket];
    return of(whole.slice(plan_.part_first(s_.bucket), plan_.part_numel(s_.bucket)), Access::read);
  }
  Operand scalars() const { return flat_operand(b_, all_of(b_, plan_.scalars), Access::read); }
  Operand master(Access access) const { return of(state_.master, access); }
  Operand param() const { return of(state_.param, written()); }
  Access written() const { return s_.written(); }
  // As many as the instruction takes: others are of other forms of a step.
  void add_states(Op op, std::vector<Operand>& operands, Access access) const {
    size_t count = 0;
    for (const OperandRule& rule : instruction(op).operands) {
      if (rule.role == Role::state) count += static_cast<size_t>(rule.most);
    }
    for (size_t i = 0; i < std::min(count, state_.states.size()); ++i)
      operands.push_back(of(state_.states[i], access));
  }
  // Of a buffer with `each` elements for each granule that this rank updates.
  Operand of_granules(const StateRef& all, int64_t each, Access access) const {
    int64_t granule = plan_.layout.buckets[s_.bucket].granule;
    int64_t first = state_.norm_first + s_.first / granule;
    return flat_operand(b_, all.slice(each * first, each * (s_.count / granule)), access);
  }
  void emit(Op op, std::vector<Operand> operands, Attrs attrs) const {
    s_.limit(b_.emit(op, std::move(operands), std::move(attrs)));
  }

 private:
  Operand of(const StateRef& state, Access access) const {
    return flat_operand(b_, state.slice(s_.first, s_.count), access);
  }
  ProgramBuilder& b_;
  const ZeroPlan& plan_;
  const Stretch& s_;
  const BucketState& state_;
  const Means& means_;
};

void emit_elementwise(const StretchEmitter& s, const Optimizer& optimizer, const Config& config) {
  std::vector<Operand> operands{s.grad(), s.scalars(), s.master(Access::update)};
  s.add_states(optimizer.op, operands, Access::update);
  operands.push_back(s.param());
  s.emit(optimizer.op, std::move(operands), optimizer.attrs(config.optimizer));
}

void emit_norms(const StretchEmitter& s, const Optimizer& optimizer, const Config& config,
                const StateRef& norms) {
  std::vector<Operand> operands{s.grad(), s.scalars(), s.master(Access::read)};
  s.add_states(optimizer.by_norms->norms, operands, Access::update);
  operands.push_back(s.of_granules(norms, 2, s.written()));
  s.emit(optimizer.by_norms->norms, std::move(operands), optimizer.attrs(config.optimizer));
}

void emit_by_ratios(const StretchEmitter& s, const Optimizer& optimizer, const Config& config,
                    const StateRef& ratios) {
  std::vector<Operand> operands;
  s.add_states(optimizer.op, operands, Access::read);
  operands.push_back(s.of_granules(ratios, 1, Access::read));
  operands.insert(operands.end(), {s.scalars(), s.master(Access::update), s.param()});
  s.emit(optimizer.op, std::move(operands), optimizer.attrs(config.optimizer));
}

// In the order of the reductions: gradients that stayed near come first, loads of the others run behind them.
template <typename Emit>
void for_stretches(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config, const Means& means,
                   const Emit& emit) {
  for (BucketId b = plan.buckets.last(); b.exists(); --b) {
    for (const Stretch& stretch : stretches_of(plan, config, b, plan.part_first(b), plan.part_numel(b)))
      emit(StretchEmitter(builder, plan, stretch, means));
  }
}

void emit_optimizer(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config, const Means& means) {
  const Optimizer& optimizer = optimizer_of(config.optimizer);
  auto each = [&](const auto& emit) { for_stretches(builder, plan, config, means, emit); };
  if (!optimizer.by_norms) {
    return each([&](const StretchEmitter& s) { emit_elementwise(s, optimizer, config); });
  }
  const StateRef norms = all_of(builder, plan.update_norms);
  each([&](const StretchEmitter& s) { emit_norms(s, optimizer, config, norms); });
  const StateRef ratios = emit_ratios(builder, plan, config);
  each([&](const StretchEmitter& s) { emit_by_ratios(s, optimizer, config, ratios); });
}

}  // namespace

bool Stretch::whole() const {
  int64_t updated = 0;
  for (const ElementRun& r : runs) updated += r.end - r.begin;
  return updated == count;
}

void Stretch::limit(Instr& update) const {
  const ElementRun all{0, count};
  if (runs.size() > 1 || runs[0] != all) update.runs = runs;
}

std::vector<Stretch> stretches_of(const ZeroPlan& plan, const Config& config, BucketId bucket, int64_t low,
                                  int64_t numel) {
  std::vector<Stretch> out;
  if (!plan.trains(bucket)) return out;
  int64_t most = update_group(config.zero);
  // Norms are of whole granules.
  if (optimizer_of(config.optimizer).by_norms) {
    int64_t unit = std::lcm(kFileBlock, plan.layout.buckets[bucket].granule);
    most = std::max(unit, most / unit * unit);
  }
  for (int64_t first = 0; first < numel; first += most) {
    Stretch s{bucket, first, std::min(most, numel - first), {}};
    s.runs = update_runs(plan, bucket, low + s.first, s.count, config.optimizer.stochastic);
    if (!s.runs.empty()) out.push_back(std::move(s));
  }
  return out;
}

int64_t update_group(const ZeroConfig& zero) {
  if (zero.sub_group_size == 0) return kLeastUpdateGroup;
  // As many elements of any type are whole blocks.
  return std::max(kFileBlock, zero.sub_group_size / kFileBlock * kFileBlock);
}

void emit_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config, BufferId own_norms) {
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
