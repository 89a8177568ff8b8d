#include "zero/update.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/program/element_run.h"
#include "optim/optimizer.h"
#include "zero/gather.h"
#include "zero/loss_and_norm.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// What is trained of the elements [low, low + count) of a bucket, counted from `low`. Padding follows the
// parameter before it.
std::vector<ElementRun> update_runs(const ZeroPlan& plan, BucketId bucket, int64_t low, int64_t count) {
  std::vector<ElementRun> runs;
  const Bucket& b = plan.layout.buckets[bucket];
  for (size_t i = 0; i < b.params.size(); ++i) {
    ParamId param = b.params[i].param;
    int64_t next = i + 1 < b.params.size() ? b.params[i + 1].begin : b.numel,
            missed = plan.trained.missed[param], group = plan.trained.group[param];
    int64_t begin = std::max(b.params[i].begin - low, int64_t{0}), end = std::min(next - low, count);
    if (plan.trained.frozen[param] || begin >= end) continue;
    if (!runs.empty() && runs.back().end == begin && runs.back().missed == missed &&
        runs.back().group == group) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end, missed, group});
    }
  }
  return runs;
}

void emit_optimizer(ProgramBuilder& b, const ZeroPlan& plan, const Config& config, BucketId bucket) {
  if (!plan.trains(bucket)) return;
  const Optimizer& optimizer = optimizer_of(config.optimizer);
  const BucketState& s = plan.buckets[bucket];
  int64_t numel = plan.part_numel(bucket);
  StateRef grad{s.sum(), s.grad_first, numel};
  auto emit = [&](int64_t first, int64_t count, bool whole) -> Instr& {
    auto operand = [&](const StateRef& of, Access access) {
      return flat_operand(b, of.slice(first, count), access);
    };
    std::vector<Operand> operands{operand(grad, Access::read),
                                  flat_operand(b, all_of(b, plan.scalars), Access::read),
                                  operand(s.master, Access::update)};
    for (const StateRef& state : s.states) operands.push_back(operand(state, Access::update));
    operands.push_back(operand(s.param, whole ? Access::write : Access::update));
    return b.emit(optimizer.op, std::move(operands), optimizer.attrs(config.optimizer));
  };
  for_update_groups(plan, config, bucket, plan.part_first(bucket), numel, emit);
}

}  // namespace

void for_update_groups(const ZeroPlan& plan, const Config& config, BucketId bucket, int64_t low,
                       int64_t numel, const EmitUpdate& emit) {
  int64_t group = update_group(config.zero);
  for (int64_t first = 0; first < numel; first += group) {
    int64_t count = std::min(group, numel - first), updated = 0;
    std::vector<ElementRun> runs = update_runs(plan, bucket, low + first, count);
    if (runs.empty()) continue;
    for (const ElementRun& r : runs) updated += r.end - r.begin;
    bool whole = updated == count;
    Instr& update = emit(first, count, whole);
    if (!whole || runs.size() > 1 || runs[0].missed > 0 || runs[0].group > 0) update.runs = std::move(runs);
  }
}

int64_t update_group(const ZeroConfig& zero) {
  // As many elements of any type are whole blocks.
  return std::max(kFileBlock, zero.sub_group_size / kFileBlock * kFileBlock);
}

void emit_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config) {
  emit_clip(builder, plan, config);
  // In the order of the reductions: gradients that stayed near come first, loads of the others run behind
  // them.
  for (BucketId b = plan.buckets.last(); b.exists(); --b) emit_optimizer(builder, plan, config, b);
  for (BucketId b : plan.buckets.ids()) {
    if (plan.trains(b)) emit_param_gather(builder, plan, b);
  }
  builder.end_segment(Phase::update);
}

}  // namespace ds
