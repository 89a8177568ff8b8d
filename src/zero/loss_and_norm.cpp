#include "zero/loss_and_norm.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/element_run.h"
#include "core/base/round.h"
#include "core/program/levels.h"
#include "optim/optimizer.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// Which of the ranks along `data`, counted from 0, is member `m` of the group `number` of a class.
int64_t data_rank(const ZeroPlan& plan, const ParamClass& c, int64_t number, int64_t m) {
  int64_t apart = c.levels.stride() / plan.mesh.data_group().stride;
  return number / apart * apart * c.levels.ranks() + number % apart + m * apart;
}

// Where the first holder of a part of a bucket has the norms of its granules, among those of all
// ranks. Ranks that hold a copy of the part leave equal norms, which nobody reads.
int64_t norms_of_part(const ZeroPlan& plan, BucketId bucket, int64_t group, int64_t part) {
  const ParamClass& c = plan.cls(bucket);
  const int64_t holder =
      data_rank(plan, c, group, c.levels.holder(static_cast<int>(part), c.policy.states));
  return holder * plan.norms_used + plan.buckets[bucket].norm_first;
}

// Where the norms of the granules of a parameter lie among those of all ranks, which no layout
// changes the order of. What a class holds on several groups of ranks along `data` are different
// slices, one behind the other. visit(begin, end)
template <typename Visit>
void for_norms(const ZeroPlan& plan, ParamId p, const Visit& visit) {
  BucketId bucket = plan.layout.bucket_of[p];
  const ParamPlace& place = plan.layout.place(p);
  int64_t granule = plan.layout.buckets[bucket].granule, part = plan.granules(bucket);
  int64_t first = place.begin / granule, end = first + ceil_div(place.numel, granule);
  const ParamClass& c = plan.cls(bucket);
  for (int64_t group = 0; group < plan.mesh.data_size() / c.levels.ranks(); ++group) {
    for (int64_t g = first; g < end;) {
      int64_t next = std::min(end, (g / part + 1) * part);
      int64_t at = norms_of_part(plan, bucket, group, g / part) + g % part;
      visit(at, at + next - g);
      g = next;
    }
  }
}

// Of all parameters; none where the norms lie in that order.
std::vector<ElementRun> norm_runs(const ZeroPlan& plan, int64_t count) {
  std::vector<ElementRun> runs;
  for (ParamId p : plan.layout.bucket_of.ids()) {
    if (!plan.trains(plan.layout.bucket_of[p])) continue;
    for_norms(plan, p, [&](int64_t begin, int64_t end) {
      if (!runs.empty() && runs.back().end == begin) {
        runs.back().end = end;
      } else {
        runs.push_back({begin, end});
      }
    });
  }
  if (runs == std::vector<ElementRun>{{0, count}}) {
    runs.clear();
  } else if (runs.empty() && count > 0) {
    runs.push_back(
        {0, 0});  // only empty parameters are trained: of what lies there nothing is added
  }
  return runs;
}

// Of each trained parameter, whose number is the group of its runs.
std::vector<ElementRun> norm_runs_by_param(const ZeroPlan& plan) {
  std::vector<ElementRun> runs;
  for (ParamId p : plan.layout.bucket_of.ids()) {
    if (plan.trained.frozen[p]) continue;
    for_norms(plan, p, [&](int64_t begin, int64_t end) {
      runs.push_back({begin, end, 0, p.number()});
    });
  }
  return runs;
}

// `each` norms of each granule, of all ranks along `data`; where every rank has all, its own.
StateRef gather_norms(ProgramBuilder& builder, const ZeroPlan& plan, BufferId norms, int64_t each,
                      const std::string& name) {
  StateRef own{norms, 0, each * plan.norms_used};
  auto apart = [&](const ParamClass& c) {
    return c.policy.states > 0 || c.levels.ranks() < plan.mesh.data_size();
  };
  if (std::none_of(plan.classes.begin(), plan.classes.end(), apart)) return own;
  int64_t count = own.numel * plan.mesh.data_size();
  StateRef all{builder.transient(name, DS_DTYPE_F64, count, builder.buffer(norms).tier), 0, count};
  builder
      .emit(Op::all_gather,
            {flat_operand(builder, own, Access::read), flat_operand(builder, all, Access::write)})
      .group = plan.mesh.data_group();
  return all;
}

// Where the norms of the granules lie in own_norms, in the order of parameters.
std::vector<ElementRun> own_norm_runs(const ZeroPlan& plan) {
  std::vector<ElementRun> runs;
  for (ParamId p : plan.layout.bucket_of.ids()) {
    BucketId bucket = plan.layout.bucket_of[p];
    if (!plan.trains(bucket)) continue;
    const ParamPlace& place = plan.layout.place(p);
    int64_t granule = plan.layout.buckets[bucket].granule;
    int64_t first = own_norm_first(plan, bucket) + place.begin / granule;
    runs.push_back({first, first + ceil_div(place.numel, granule)});
  }
  return runs;
}

Attrs clip_attrs(const Config& config) {
  Attrs attrs{{"max_norm", config.gradient_clipping}};
  // NaN and infinity are then updated with.
  if (config.compute == DS_DTYPE_BF16 && !config.check_grad_overflow)
    attrs.set("unchecked", int64_t{1});
  return attrs;
}

}  // namespace

void emit_losses(ProgramBuilder& builder, const ZeroPlan& plan) {
  StateRef own = all_of(builder, plan.loss);
  int64_t count = own.numel * plan.mesh.data_size();
  StateRef all{builder.transient("losses", DS_DTYPE_F32, count, Tier::device), 0, count};
  builder
      .emit(Op::all_gather,
            {flat_operand(builder, own, Access::read), flat_operand(builder, all, Access::write)})
      .group = plan.mesh.data_group();
  Attrs attrs{{"micros", plan.accumulation}};
  if (plan.loss_unit > 0) attrs.set("unit", plan.loss_unit);
  builder.emit(Op::losses,
               {flat_operand(builder, all, Access::read),
                flat_operand(builder, all_of(builder, plan.scalars), Access::update)},
               std::move(attrs));
  builder.end_segment(Phase::losses);
}

void emit_clip(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config) {
  StateRef all = gather_norms(builder, plan, plan.norms, 1, "all_norms");
  builder
      .emit(Op::clip,
            {flat_operand(builder, all, Access::read),
             flat_operand(builder, all_of(builder, plan.scalars), Access::update)},
            clip_attrs(config))
      .runs = norm_runs(plan, all.numel);
}

namespace {

// `each` norms of each granule become a ratio each; `kept`: what stands between them among the
// operands.
StateRef emit_ratios(ProgramBuilder& builder, const ZeroPlan& plan, Op op, int64_t each,
                     const std::vector<Operand>& kept, Attrs attrs) {
  StateRef all = gather_norms(builder, plan, plan.update_norms, each, "all_update_norms");
  int64_t granules = all.numel / each;
  StateRef ratios{
      builder.transient("ratios", DS_DTYPE_F32, granules, builder.buffer(plan.update_norms).tier),
      0, granules};
  std::vector<Operand> operands{flat_operand(builder, all, Access::read)};
  operands.insert(operands.end(), kept.begin(), kept.end());
  operands.push_back(flat_operand(builder, ratios, Access::write));
  builder.emit(op, std::move(operands), std::move(attrs)).runs = norm_runs_by_param(plan);
  return ratios;
}

// Numbers of all parameters, of one kind (JoinedMomenta).
Operand coefficients(const ProgramBuilder& builder, const ZeroPlan& plan, int64_t kind,
                     Access access) {
  return flat_operand(
      builder, plan.joined.kind(kind, static_cast<int64_t>(plan.layout.bucket_of.size())), access);
}

}  // namespace

int64_t first_ratio(const ZeroPlan& plan, BucketId bucket) {
  const RankLevels& levels = plan.levels(bucket);
  const int64_t apart = levels.stride() / plan.mesh.data_group().stride,
                mine = plan.mesh.leaf(0, plan.rank);
  const int64_t group = mine / (apart * levels.ranks()) * apart + mine % apart;
  return norms_of_part(plan, bucket, group, levels.part_of(plan.rank, plan.policy(bucket).states));
}

StateRef emit_ratios(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config) {
  const NormRatios& by_norms = *optimizer_of(config.optimizer).by_norms;
  std::vector<Operand> kept;
  if (plan.joined.coefficients.exists())
    kept.push_back(coefficients(builder, plan, 1, Access::update));
  return emit_ratios(builder, plan, by_norms.ratios, 2, kept, by_norms.attrs(config.optimizer));
}

StateRef emit_frozen_ratios(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config) {
  const OptimizerConfig& o = config.optimizer;
  return emit_ratios(builder, plan, Op::frozen_lamb_ratios, 3,
                     {flat_operand(builder, all_of(builder, plan.scalars), Access::read),
                      coefficients(builder, plan, 1, Access::read),
                      coefficients(builder, plan, 2, Access::update)},
                     {{"factor_min", o.factor_min},
                      {"factor_max", o.factor_max},
                      {"factor_threshold", o.factor_threshold}});
}

void emit_clip_of_own(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config,
                      BufferId own_norms) {
  Tier tier = builder.buffer(own_norms).tier;
  int64_t ranks = plan.mesh.data_size();
  StateRef own{builder.transient("own_square", DS_DTYPE_F64, 1, tier), 0, 1};
  builder
      .emit(Op::sum_norms, {flat_operand(builder, all_of(builder, own_norms), Access::read),
                            flat_operand(builder, own, Access::write)})
      .runs = own_norm_runs(plan);
  StateRef all{builder.transient("all_squares", DS_DTYPE_F64, ranks, tier), 0, ranks};
  builder
      .emit(Op::all_gather,
            {flat_operand(builder, own, Access::read), flat_operand(builder, all, Access::write)})
      .group = plan.mesh.data_group();
  Attrs attrs = clip_attrs(config);
  attrs.set("ranks", ranks);
  builder.emit(Op::clip,
               {flat_operand(builder, all, Access::read),
                flat_operand(builder, all_of(builder, plan.scalars), Access::update)},
               std::move(attrs));
}

}  // namespace ds
