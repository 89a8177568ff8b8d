// Problem. Every rank needs the norm of all gradients, and some optimizers need the norms of each
// parameter. The bits of these norms must not depend on buckets, on levels or on the ZeRO stage.
//
// Invariant. The unit is the granule, which has elements of one parameter: its norm is computed as
// a whole by each rank that holds it. Every rank adds the norms of granules in the order of the
// parameters.
//
// Algorithm. Every rank gathers the norms of all ranks (gather_norms). They arrive in the order of
// ranks and buckets, so runs of elements (norm_runs) give the instruction the order in which to add
// them. Ranks that hold copies of a part leave equal norms: only those of the first holder are
// read.
#include "update/loss_and_norm.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/element_run.h"
#include "core/base/round.h"
#include "core/program/levels.h"
#include "optim/optimizer.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// Returns the rank along `data`, counted from 0, that is member `m` of group `number` of a class.
// Members of a group are `apart` ranks apart, and `apart` groups interleave.
int64_t data_rank(const ZeroPlan& plan, const ParamClass& c, int64_t number, int64_t m) {
  int64_t apart = c.levels.stride() / plan.mesh.data_group().stride;
  return number / apart * apart * c.levels.ranks() + number % apart + m * apart;
}

// Returns the index, in the norms of all ranks, of the first norm of a part of a bucket. The norms
// are read from the first rank that holds the part; other holders leave equal norms, which nobody
// reads.
int64_t norms_of_part(const ZeroPlan& plan, BucketId bucket, int64_t group, int64_t part) {
  const ParamClass& c = plan.cls(bucket);
  const int64_t holder =
      data_rank(plan, c, group, c.levels.holder(static_cast<int>(part), c.policy.states));
  return holder * plan.norms_used + plan.buckets[bucket].norm_first;
}

// Calls visit(begin, end) for the runs, within the norms of all ranks, that hold the norms of a
// parameter's granules. The order is that of the granules, which does not depend on the layout. If
// a class has several groups of ranks along `data`, the groups hold different slices of the
// parameter, and the slices are visited in the order of the groups.
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

// Returns the runs of for_norms() for all parameters of trained buckets, in the order of the
// parameters. An empty result means that the `count` norms are already in this order.
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
    // Only parameters without elements are trained. A single empty run says that no norm is added,
    // while a list without runs would mean that all are.
    runs.push_back({0, 0});
  }
  return runs;
}

// Returns the runs of for_norms() for each trained parameter. The `group` of a run is the number of
// its parameter.
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

// Gathers the norms of all ranks along `data`, with `each` norms per granule. If every rank holds
// all granules, returns the rank's own norms.
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

// Returns the runs of StepBuffers::own_norms that hold the norms of each parameter, in the order of
// parameters.
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
  // With `unchecked`, the update runs even if a gradient is NaN or infinite.
  if (config.compute == DS_DTYPE_BF16 && !config.check_grad_overflow)
    attrs.set("unchecked", int64_t{1});
  return attrs;
}

}  // namespace

void emit_losses(ProgramBuilder& builder, const ZeroPlan& plan) {
  StateRef own = all_of(builder, plan.memory.loss);
  int64_t count = own.numel * plan.mesh.data_size();
  StateRef all{builder.transient("losses", DS_DTYPE_F32, count, Tier::device), 0, count};
  builder
      .emit(Op::all_gather,
            {flat_operand(builder, own, Access::read), flat_operand(builder, all, Access::write)})
      .group = plan.mesh.data_group();
  Attrs attrs{{"micros", plan.accumulation}};
  if (plan.memory.loss_unit > 0) attrs.set("unit", plan.memory.loss_unit);
  builder.emit(
      Op::losses,
      {flat_operand(builder, all, Access::read), scalars_operand(builder, plan, Access::update)},
      std::move(attrs));
  builder.end_segment(Phase::losses);
}

void emit_clip(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config) {
  StateRef all = gather_norms(builder, plan, plan.norms, 1, "all_norms");
  builder
      .emit(Op::clip,
            {flat_operand(builder, all, Access::read),
             scalars_operand(builder, plan, Access::update)},
            clip_attrs(config))
      .runs = norm_runs(plan, all.numel);
}

namespace {

// Emits instruction `op`, which computes one ratio from `each` norms for every granule, and returns
// the ratios. The operands are the norms, then `kept`, then the ratios.
StateRef emit_ratios(ProgramBuilder& builder, const ZeroPlan& plan, std::string_view op,
                     int64_t each, const std::vector<Operand>& kept, Attrs attrs) {
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

// Returns one coefficient of all parameters (ZeroPlan::coefficients) as an operand.
Operand coefficients(const ProgramBuilder& builder, const ZeroPlan& plan, int64_t kind,
                     Access access) {
  return flat_operand(builder, plan.coefficients(kind), access);
}

}  // namespace

// Finds this rank's group by inverting data_rank().
int64_t first_ratio(const ZeroPlan& plan, BucketId bucket) {
  const RankLevels& levels = plan.levels(bucket);
  const int64_t apart = levels.stride() / plan.mesh.data_group().stride,
                mine = plan.mesh.leaf(0, plan.rank);
  const int64_t group = mine / (apart * levels.ranks()) * apart + mine % apart;
  return norms_of_part(plan, bucket, group, levels.part_of(plan.rank, plan.policy(bucket).states));
}

StateRef emit_ratios(ProgramBuilder& builder, const ZeroPlan& plan, const OptimizerConfig& config) {
  const NormRatios& by_norms = *optimizer_of(config).by_norms;
  std::vector<Operand> kept;
  if (plan.joint_buffer(kCoefficients).exists())
    kept.push_back(coefficients(builder, plan, 1, Access::update));
  return emit_ratios(builder, plan, by_norms.ratios, 2, kept, by_norms.attrs(config));
}

StateRef emit_frozen_ratios(ProgramBuilder& builder, const ZeroPlan& plan,
                            const OptimizerConfig& config) {
  return emit_ratios(builder, plan, "frozen_lamb_ratios", 3,
                     {scalars_operand(builder, plan), coefficients(builder, plan, 1, Access::read),
                      coefficients(builder, plan, 2, Access::update)},
                     {{"factor_min", config.factor_min},
                      {"factor_max", config.factor_max},
                      {"factor_threshold", config.factor_threshold}});
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
  builder.emit(
      Op::clip,
      {flat_operand(builder, all, Access::read), scalars_operand(builder, plan, Access::update)},
      std::move(attrs));
}

}  // namespace ds
