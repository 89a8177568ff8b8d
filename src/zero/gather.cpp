// Problem. A rank has its part of a bucket of parameters and needs more of it: all of it before a
// kernel reads it (stage 3), or all that it keeps after the update (stages 1 and 2, and hpZ, whose
// ranks keep more than they update). The ranks that have the rest are in nested blocks
// (core/program/levels.h), and links between blocks are slower than those inside.
//
// Invariant. Ranks that differ only in the outermost level of a cut hold neighbouring parts of the
// bucket (RankLevels::part_of). So one all_gather over the group of that level gives each of them a
// larger contiguous part of the bucket: its part of the cut over one level less. Nothing is ever
// moved within a rank.
//
// Algorithm. One all_gather for each level, the outermost first (gather_levels), so that the least
// data crosses the slow links. Intermediate parts go to transient buffers or, if the rank's part
// lies in the target buffer on the device, directly to their place there. Quantized weights are
// gathered in the same way, as codes: each rank encodes its part once, the codes are gathered over
// all levels, and every rank decodes all of them, including those of its own part. Hence all ranks
// compute with equal weights, regardless of the levels.
//
// Cost. One collective for each level. A rank receives (W - 1) / W of a bucket that is cut over W
// ranks; if the outermost level has s blocks, (s - 1) / W of the bucket comes over its links.
//
// Sources. Hierarchical partitions: ZeRO++ (arXiv:2306.10209); MiCS (arXiv:2205.00119).
#include "zero/gather.h"

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/program/codes.h"
#include "zero/step_buffers.h"

namespace ds {
namespace {

// Gathers a bucket over the levels from `from` - 1 down to `to`. This rank begins with `own`, its
// part of a cut over `from` levels, and ends with its part of a cut over `to` levels, which fills
// the buffer `target`.
std::vector<Instr> gather_levels(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                                 const StateRef& own, int from, BufferId target, int to) {
  std::vector<Instr> out;
  const Bucket& b = plan.layout.buckets[bucket];
  const Buffer whole = builder.buffer(target);
  bool in_place = own.buffer == target && whole.tier == Tier::device;
  // The number of elements of `target` for one granule. If `target` holds codes, an element is a
  // byte.
  int64_t granule = whole.numel / (plan.part_numel(bucket, to) / b.granule);
  auto elements = [&](int64_t numel) { return numel / b.granule * granule; };
  StateRef have = own;
  for (int level = from; level-- > to;) {
    int64_t numel = elements(plan.part_numel(bucket, level));
    StateRef into{target, elements(plan.part_first(bucket, level) - plan.part_first(bucket, to)),
                  numel};
    if (level > to && !in_place) {
      std::string name = fmt::format("{}.part{}", b.name, level);
      into = {builder.transient(name, whole.dtype, numel, Tier::device), 0, numel};
    }
    Instr gather = make_instr(Op::all_gather, {flat_operand(builder, have, Access::read),
                                               flat_operand(builder, into, Access::write)});
    gather.bucket = bucket;
    gather.group = plan.levels(bucket).group(level);
    out.push_back(std::move(gather));
    have = into;
  }
  return out;
}

}  // namespace

std::vector<Instr> gather_bucket(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                                 BufferId target) {
  StateRef own = all_of(builder, plan.buckets[bucket].param.ref.buffer);
  int64_t bits = plan.quantization.weights;
  if (bits == 0)
    return gather_levels(builder, plan, bucket, own, plan.policy(bucket).params, target, 0);
  const Bucket& b = plan.layout.buckets[bucket];
  int64_t mine = code_bytes(own.numel, bits), all = code_bytes(b.numel, bits);
  BufferId codes = builder.transient(b.name + ".codes", DS_DTYPE_U8, mine, Tier::device);
  BufferId gathered = builder.transient(b.name + ".all_codes", DS_DTYPE_U8, all, Tier::device);
  std::vector<Instr> out;
  auto push = [&](Op op, const StateRef& from, const StateRef& to) {
    out.push_back(make_instr(
        op, {flat_operand(builder, from, Access::read), flat_operand(builder, to, Access::write)},
        {{"bits", bits}}));
    out.back().bucket = bucket;
  };
  push(Op::quantize, own, {codes, 0, mine});
  for (Instr& gather : gather_levels(builder, plan, bucket, {codes, 0, mine},
                                     plan.policy(bucket).params, gathered, 0))
    out.push_back(std::move(gather));
  push(Op::dequantize, {gathered, 0, all}, {target, 0, b.numel});
  return out;
}

void emit_param_gather(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket) {
  const BucketState& s = plan.buckets[bucket];
  // A persistent bucket is whole on every rank, even if the policy cuts parameters.
  int kept = s.partitioned ? plan.policy(bucket).params : 0;
  if (plan.levels(bucket).ranks() == 1) return;
  for (Instr& in : gather_levels(builder, plan, bucket, s.param.ref, plan.policy(bucket).states,
                                 s.param.ref.buffer, kept))
    builder.emit(std::move(in));
}

void emit_gather_of_parts(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                          const StateRef& own, BufferId target) {
  for (Instr& in : gather_levels(builder, plan, bucket, own, plan.policy(bucket).states, target, 0))
    builder.emit(std::move(in));
}

void emit_momentum_gather(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket) {
  const BucketState& s = plan.buckets[bucket];
  if (s.states.empty() || plan.levels(bucket).ranks() == 1) return;
  const StateRef& momentum = s.state(0);
  for (Instr& in : gather_levels(builder, plan, bucket, momentum, plan.policy(bucket).states,
                                 momentum.buffer, 0))
    builder.emit(std::move(in));
}

}  // namespace ds
