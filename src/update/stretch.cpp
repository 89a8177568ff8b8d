#include "update/stretch.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/base/element_run.h"
#include "optim/optimizer.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// Returns the runs of trained elements among elements [low, low + count) of a bucket, counted from
// `low`. Padding belongs to the parameter before it. With `by_param`, each run has elements of only
// one parameter and says which one. Without `padding`, runs leave padding out. `skips` is
// ElementRun::skips of all runs.
std::vector<ElementRun> update_runs(const ZeroPlan& plan, BucketId bucket, int64_t low,
                                    int64_t count, bool by_param, bool padding, bool skips) {
  std::vector<ElementRun> runs;
  const Bucket& b = plan.layout.buckets[bucket];
  for (size_t i = 0; i < b.params.size(); ++i) {
    ParamId param = b.params[i].param;
    int64_t next = i + 1 < b.params.size() ? b.params[i + 1].begin : b.numel,
            missed = plan.trained.missed[param], group = plan.trained.group[param];
    if (!padding) next = b.params[i].begin + b.params[i].numel;
    int64_t begin = std::max(b.params[i].begin - low, int64_t{0}),
            end = std::min(next - low, count);
    if (plan.trained.frozen[param] || begin >= end) continue;
    if (by_param) {
      runs.push_back(
          {begin, end, missed, group, param.number(), begin + low - b.params[i].begin, skips});
    } else if (!runs.empty() && runs.back().end == begin && runs.back().missed == missed &&
               runs.back().group == group) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end, missed, group});
    }
  }
  return runs;
}

}  // namespace

bool Stretch::whole() const {
  int64_t updated = 0;
  for (const ElementRun& r : runs) updated += r.skips ? 0 : r.end - r.begin;
  return updated == count;
}

// An instruction without runs updates all elements.
void Stretch::limit(Instr& update) const {
  const ElementRun all{0, count};
  if (runs.size() > 1 || runs[0] != all) update.runs = runs;
}

int64_t stretch_size(const ZeroPlan& plan, const Config& config, BucketId bucket) {
  const int64_t most = update_group(config.zero);
  if (!optimizer_of(config.optimizer).by_norms) return most;
  // Norms are computed over whole granules, so a stretch must consist of whole granules.
  const int64_t unit = std::lcm(kFileBlock, plan.layout.buckets[bucket].granule);
  return std::max(unit, most / unit * unit);
}

std::vector<Stretch> stretches_of(const ZeroPlan& plan, const Config& config, BucketId bucket,
                                  int64_t low, int64_t numel) {
  std::vector<Stretch> out;
  if (!plan.trains(bucket)) return out;
  const int64_t most = stretch_size(plan, config, bucket);
  const bool by_callback = optimizer_of(config.optimizer).by_callback;
  const bool skips = config.skip_missing, stochastic = config.optimizer.stochastic;
  for (int64_t first = 0; first < numel; first += most) {
    Stretch s{bucket, first, std::min(most, numel - first), {}};
    s.runs = update_runs(plan, bucket, low + s.first, s.count, skips || by_callback || stochastic,
                         !by_callback, skips);
    if (!s.runs.empty()) out.push_back(std::move(s));
  }
  return out;
}

Operand gradient_of(ProgramBuilder& builder, const ZeroPlan& plan, const Stretch& stretch,
                    bool bf16_too) {
  const BucketState& state = plan.buckets[stretch.bucket];
  const StateRef all{state.sum(), state.grad_first, plan.part_numel(stretch.bucket)};
  Operand sum = flat_operand(builder, all.slice(stretch.first, stretch.count), Access::read);
  if (sum.type.dtype == DS_DTYPE_F32 || (bf16_too && sum.type.dtype == DS_DTYPE_BF16)) return sum;
  const Tier tier = builder.buffer(state.sum()).tier == Tier::device ? Tier::device : Tier::host;
  const std::string name = plan.layout.buckets[stretch.bucket].name + ".grad.f32";
  const StateRef wide{builder.transient(name, DS_DTYPE_F32, stretch.count, tier), 0, stretch.count};
  builder.emit(Op::accumulate, {sum, flat_operand(builder, wide, Access::write)},
               {{"beta", int64_t{0}}});
  return flat_operand(builder, wide, Access::read);
}

int64_t update_group(const ZeroConfig& zero) {
  if (zero.sub_group_size == 0) return kLeastUpdateGroup;
  // A multiple of kFileBlock elements fills whole blocks in every type.
  return std::max(kFileBlock, zero.sub_group_size / kFileBlock * kFileBlock);
}

}  // namespace ds
