#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/round.h"
#include "core/program/codes.h"
#include "core/program/element_run.h"
#include "optim/optimizer.h"
#include "zero/insert.h"

namespace ds {
namespace {

Operand part_of(const ProgramBuilder& b, const StateRef& ref, int64_t first, int64_t numel, Access access) {
  return flat(b.buffer(ref.buffer), ref.buffer, ref.first + first, numel, access);
}

Operand scalars_of(const ProgramBuilder& b, const ZeroPlan& plan, Access access) {
  const Buffer& block = b.buffer(plan.scalars);
  return flat(block, plan.scalars, 0, block.numel, access);
}

// Gathers the updated places of the other ranks, where a rank keeps more of the parameters than it updates.
void gather_params(ProgramBuilder& b, const ZeroPlan& plan, BucketId bucket) {
  const BucketState& s = plan.buckets[bucket];
  int kept = s.partitioned ? plan.policy.params : 0;
  if (plan.levels.ranks() == 1) return;
  for (Instr& in : gather_levels(b, plan, bucket, s.param, plan.policy.states, s.param.buffer, kept))
    b.emit(std::move(in));
}

// Where the norms of the granules lie among those of all ranks, in the order of parameters, which no layout
// changes; none where that is the order that they lie in.
std::vector<ElementRun> norm_runs(const ZeroPlan& plan, int64_t count) {
  std::vector<ElementRun> runs;
  for (ParamId p : plan.layout.bucket_of.ids()) {
    BucketId bucket = plan.layout.bucket_of[p];
    if (!plan.trains(bucket)) continue;
    const ParamPlace& place = plan.layout.place(p);
    int64_t granule = plan.layout.buckets[bucket].granule, part = plan.granules(bucket);
    int64_t first = place.begin / granule, end = first + ceil_div(place.numel, granule);
    for (int64_t g = first; g < end;) {
      int64_t next = std::min(end, (g / part + 1) * part);
      int64_t at = plan.levels.holder(static_cast<int>(g / part), plan.policy.states) * plan.norms_used +
                   plan.buckets[bucket].norm_first + g % part;
      if (!runs.empty() && runs.back().end == at) {
        runs.back().end += next - g;
      } else {
        runs.push_back({at, at + next - g, 0});
      }
      g = next;
    }
  }
  if (runs == std::vector<ElementRun>{{0, count, 0}}) runs.clear();
  return runs;
}

void emit_clip(ProgramBuilder& b, const ZeroPlan& plan, const Config& config) {
  int64_t local = plan.norms_used, count = local;
  BufferId all = plan.norms;
  if (plan.policy.states > 0) {
    count = local * plan.mesh.data_size();
    all = b.transient("all_norms", DS_DTYPE_F64, count, Tier::host);
    b.emit(Op::all_gather, {flat(b.buffer(plan.norms), plan.norms, 0, local, Access::read),
                            flat(b.buffer(all), all, 0, count, Access::write)})
        .group = plan.mesh.data_group();
  }
  b.emit(Op::clip, {flat(b.buffer(all), all, 0, count, Access::read), scalars_of(b, plan, Access::update)},
         {{"max_norm", config.gradient_clipping}})
      .runs = norm_runs(plan, count);
}

// What is trained of the elements [first, first + count) of this rank's part. Padding follows the parameter
// before it.
std::vector<ElementRun> update_runs(const ZeroPlan& plan, BucketId bucket, int64_t first, int64_t count) {
  std::vector<ElementRun> runs;
  const Bucket& b = plan.layout.buckets[bucket];
  int64_t low = plan.part_first(bucket) + first;
  for (size_t i = 0; i < b.params.size(); ++i) {
    ParamId param = b.params[i].param;
    int64_t next = i + 1 < b.params.size() ? b.params[i + 1].begin : b.numel, missed = plan.missed[param];
    int64_t begin = std::max(b.params[i].begin - low, int64_t{0}), end = std::min(next - low, count);
    if (plan.frozen[param] || begin >= end) continue;
    if (!runs.empty() && runs.back().end == begin && runs.back().missed == missed) {
      runs.back().end = end;
    } else {
      runs.push_back({begin, end, missed});
    }
  }
  return runs;
}

void emit_optimizer(ProgramBuilder& b, const ZeroPlan& plan, const Config& config, BucketId bucket) {
  if (!plan.trains(bucket)) return;
  const Optimizer& optimizer = optimizer_of(config.optimizer);
  const BucketState& s = plan.buckets[bucket];
  BufferId grad = s.sum();
  int64_t part = plan.part(bucket), group = update_group(config.zero);
  for (int64_t first = 0; first < part; first += group) {
    int64_t count = std::min(group, part - first);
    std::vector<Operand> operands{flat(b.buffer(grad), grad, s.grad_first + first, count, Access::read),
                                  scalars_of(b, plan, Access::read),
                                  part_of(b, s.master, first, count, Access::update)};
    for (const StateRef& state : s.states)
      operands.push_back(part_of(b, state, first, count, Access::update));
    std::vector<ElementRun> runs = update_runs(plan, bucket, first, count);
    int64_t updated = 0;
    for (const ElementRun& r : runs) updated += r.end - r.begin;
    if (updated == 0) continue;
    bool whole = updated == count;
    operands.push_back(part_of(b, s.param, first, count, whole ? Access::write : Access::update));
    Instr& update = b.emit(optimizer.op, std::move(operands), optimizer.attrs(config.optimizer));
    if (!whole || runs.size() > 1 || runs[0].missed > 0) update.runs = std::move(runs);
  }
}

// Draws this rank's part of one parameter, if it has any, into `draft` (f32[part]).
void emit_draw(ProgramBuilder& b, const ZeroPlan& plan, BucketId bucket, const ParamPlace& place,
               const Init& init, BufferId draft) {
  int64_t part = plan.part(bucket);
  int64_t part_first = plan.part_first(bucket);
  int64_t begin = std::max(place.begin, part_first);
  int64_t end = std::min(place.begin + place.numel, part_first + part);
  if (begin >= end || init.kind == "zeros") return;
  b.emit(Op::init_param, {flat(b.buffer(draft), draft, begin - part_first, end - begin, Access::update)},
         {{"kind", init.kind},
          {"scale", init.scale},
          {"param", int64_t{place.param.number()}},
          {"begin", begin - place.begin}});
}

}  // namespace

int64_t update_group(const ZeroConfig& zero) {
  // As many elements of any type are whole blocks.
  return std::max(kFileBlock, zero.sub_group_size / kFileBlock * kFileBlock);
}

ProgramBuilder begin_program(const ZeroPlan& plan, const std::string& name, int64_t bound,
                             StepBuffers& buffers) {
  Program p;
  p.name = name;
  p.rank = plan.rank;
  p.mesh = plan.mesh;
  p.bound = bound;
  p.buffers = plan.buffers;
  ProgramBuilder builder(std::move(p));
  for (BucketId b : plan.buckets.ids()) {
    const Bucket& bucket = plan.layout.buckets[b];
    buffers.full.push_back(
        plan.buckets[b].partitioned
            ? builder.transient(bucket.name + ".whole", plan.compute, bucket.numel, Tier::device)
            : plan.buckets[b].full);
  }
  return builder;
}

std::vector<Instr> gather_levels(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                                 const StateRef& own, int from, BufferId target, int to) {
  std::vector<Instr> out;
  const Bucket& b = plan.layout.buckets[bucket];
  const Buffer whole = builder.buffer(target);
  bool in_place = own.buffer == target && whole.tier == Tier::device;
  int64_t granule = whole.numel / (plan.part(bucket, to) / b.granule);  // in elements of the buffer
  auto elements = [&](int64_t numel) { return numel / b.granule * granule; };
  StateRef have = own;
  for (int level = from; level-- > to;) {
    int64_t numel = elements(plan.part(bucket, level));
    StateRef into{target, elements(plan.part_first(bucket, level) - plan.part_first(bucket, to)), numel};
    if (level > to && !in_place) {
      std::string name = fmt::format("{}.part{}", b.name, level);
      into = {builder.transient(name, whole.dtype, numel, Tier::device), 0, numel};
    }
    Instr gather = make_instr(Op::all_gather, {part_of(builder, have, 0, have.numel, Access::read),
                                               part_of(builder, into, 0, numel, Access::write)});
    gather.bucket = bucket;
    gather.group = plan.levels.group(level);
    out.push_back(std::move(gather));
    have = into;
  }
  return out;
}

std::vector<Instr> gather_bucket(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket,
                                 BufferId target) {
  BufferId shard = plan.buckets[bucket].param.buffer;
  StateRef own{shard, 0, builder.buffer(shard).numel};
  int64_t bits = plan.quantization.weights;
  if (bits == 0) return gather_levels(builder, plan, bucket, own, plan.policy.params, target, 0);
  const Bucket& b = plan.layout.buckets[bucket];
  int64_t mine = code_bytes(own.numel, bits), all = code_bytes(b.numel, bits);
  BufferId codes = builder.transient(b.name + ".codes", DS_DTYPE_U8, mine, Tier::device);
  BufferId gathered = builder.transient(b.name + ".all_codes", DS_DTYPE_U8, all, Tier::device);
  std::vector<Instr> out;
  auto push = [&](Op op, Operand from, Operand to) {
    out.push_back(make_instr(op, {std::move(from), std::move(to)}, {{"bits", bits}}));
    out.back().bucket = bucket;
  };
  push(Op::quantize, part_of(builder, own, 0, own.numel, Access::read),
       flat(builder.buffer(codes), codes, 0, mine, Access::write));
  StateRef from{codes, 0, mine};
  for (Instr& gather : gather_levels(builder, plan, bucket, from, plan.policy.params, gathered, 0))
    out.push_back(std::move(gather));
  push(Op::dequantize, flat(builder.buffer(gathered), gathered, 0, all, Access::read),
       flat(builder.buffer(target), target, 0, b.numel, Access::write));
  return out;
}

void add_grad_buffers(ProgramBuilder& builder, const ZeroPlan& plan, StepBuffers& buffers) {
  IdVector<BucketId, BufferId> grads;
  for (BucketId b : plan.layout.buckets.ids()) {
    const Bucket& bucket = plan.layout.buckets[b];
    grads.push_back(plan.trains(b)
                        ? builder.transient(bucket.name + ".g", plan.compute, bucket.numel, Tier::device)
                        : BufferId());
  }
  buffers.grads.push_back(std::move(grads));
}

void zero_holes(ProgramBuilder& builder, const ZeroPlan& plan, BucketId bucket, BufferId grads, MicroId micro,
                const std::function<bool(ParamId param)>& comes) {
  std::vector<Operand> holes;
  auto hole = [&](int64_t begin, int64_t numel) {
    holes.push_back(flat(builder.buffer(grads), grads, begin, numel, Access::write));
  };
  for (auto [begin, numel] : plan.layout.buckets[bucket].padding()) hole(begin, numel);
  for (const ParamPlace& place : plan.layout.buckets[bucket].params) {
    if (place.numel > 0 && !comes(place.param)) hole(place.begin, place.numel);
  }
  if (!holes.empty()) builder.emit(Op::zero, std::move(holes), {}, micro);
}

Operand param_operand(const ZeroPlan& plan, const ProgramBuilder& builder, BufferId bucket_buffer,
                      ParamId param, const Shape& shape, Access access) {
  const ParamPlace& place = plan.layout.place(param);
  const Buffer& buffer = builder.buffer(bucket_buffer);
  return {bucket_buffer, place.begin * size_of(buffer.dtype), {buffer.dtype, shape}, access, false};
}

void emit_losses(ProgramBuilder& builder, const ZeroPlan& plan) {
  int64_t mine = plan.accumulation;
  BufferId losses = builder.transient("losses", DS_DTYPE_F32, mine * plan.mesh.data_size(), Tier::host);
  builder
      .emit(Op::all_gather,
            {flat(builder.buffer(plan.loss), plan.loss, 0, mine, Access::read),
             flat(builder.buffer(losses), losses, 0, mine * plan.mesh.data_size(), Access::write)})
      .group = plan.mesh.data_group();
  builder.emit(Op::losses,
               {flat(builder.buffer(losses), losses, 0, mine * plan.mesh.data_size(), Access::read),
                scalars_of(builder, plan, Access::update)},
               {{"micros", mine}});
  builder.end_segment(Phase::losses);
}

void emit_update(ProgramBuilder& builder, const ZeroPlan& plan, const Config& config) {
  emit_clip(builder, plan, config);
  // In the order of the reductions: gradients that stayed near come first, loads of the others run behind
  // them.
  for (BucketId b = plan.buckets.last(); b.exists(); --b) emit_optimizer(builder, plan, config, b);
  for (BucketId b : plan.buckets.ids()) {
    if (plan.trains(b)) gather_params(builder, plan, b);
  }
  builder.end_segment(Phase::update);
}

void emit_init(ProgramBuilder& builder, const ZeroPlan& plan, const IdVector<ParamId, Init>& inits) {
  for (BucketId b : plan.buckets.ids()) {
    const Bucket& bucket = plan.layout.buckets[b];
    const BucketState& s = plan.buckets[b];
    int64_t part = plan.part(b);
    BufferId draft = builder.transient(bucket.name + ".draft", DS_DTYPE_F32, part, Tier::device);
    builder.emit(Op::zero, {flat(builder.buffer(draft), draft, 0, part, Access::write)});
    for (const ParamPlace& place : bucket.params) {
      emit_draw(builder, plan, b, place, inits[place.param], draft);
    }
    DType kept = builder.buffer(s.master.buffer).dtype;
    bool cast = kept != DS_DTYPE_F32;  // the master of what is frozen is its parameter
    std::vector<Operand> operands{flat(builder.buffer(draft), draft, 0, part, Access::read),
                                  part_of(builder, s.master, 0, part, Access::write)};
    builder.emit(cast ? cast_instr(std::move(operands), kept)
                      : make_instr(Op::accumulate, std::move(operands), {{"beta", int64_t{0}}}));
    for (const StateRef& state : s.states) {
      builder.emit(Op::zero, {part_of(builder, state, 0, part, Access::write)});
    }
  }
  emit_refresh(builder, plan);
  builder.program().segments.back().phase = Phase::init;
}

void emit_refresh(ProgramBuilder& builder, const ZeroPlan& plan) {
  for (BucketId b : plan.buckets.ids()) {
    const BucketState& s = plan.buckets[b];
    if (s.master.buffer != s.param.buffer) {
      builder.emit(cast_instr({part_of(builder, s.master, 0, plan.part(b), Access::read),
                               part_of(builder, s.param, 0, plan.part(b), Access::write)},
                              plan.compute));
    }
    gather_params(builder, plan, b);
    std::vector<Operand> errors;
    for (BufferId e : s.errors)
      errors.push_back(flat(builder.buffer(e), e, 0, builder.buffer(e).numel, Access::write));
    if (!errors.empty()) builder.emit(Op::zero, std::move(errors));
  }
  builder.end_segment(Phase::refresh);
}

}  // namespace ds
