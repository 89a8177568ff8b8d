#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "core/program/codes.h"
#include "zero/insert.h"
#include "zero/row_tables.h"

namespace ds {
namespace {

// Instructions that reduce one gradient bucket of one micro-step into the accumulators.
class Reducer {
 public:
  // The program has `micros` micro-steps: all of a step, or the first ones and the last (StepBuffers::grads).
  Reducer(ProgramBuilder& builder, const ZeroPlan& plan, int64_t micros)
      : builder_(builder), plan_(plan), micros_(micros) {}

  std::vector<Instr> reduce(BucketId bucket, MicroId micro, BufferId grads) {
    out_.clear();
    bucket_ = bucket;
    micro_ = micro;
    if (plan_.tree) {
      any_of_middle() ? tree_by_filter(grads) : tree(grads);
    } else if (first() || plan_.levels.ranks() == 1) {
      sum_of_ranks(grads, acc(0), first() ? 0 : 1);
    } else {
      BufferId sum = temporary();
      sum_of_ranks(grads, sum, 0);
      accumulate(sum, acc(0), 1);
    }
    if (last()) norms();
    return std::move(out_);
  }

 private:
  bool first() const { return micro_ == MicroId(0); }
  bool last() const { return micro_.number() + 1 == micros_; }
  // What stands for several micro-steps must not depend on which of them it is.
  bool any_of_middle() const { return micros_ < plan_.accumulation && !first() && !last(); }

  // Binary counter: level j holds the sum of 2^j micro-steps.
  void tree(BufferId grads) {
    int64_t done = last() ? plan_.accumulation : micro_.number() + 1;  // micro-steps, with this one
    int merges = std::countr_zero(static_cast<uint64_t>(done));
    if (merges == 0) {
      sum_of_ranks(grads, acc(0), 0);
    } else {
      BufferId sum = temporary();
      sum_of_ranks(grads, sum, 0);
      for (int j = 0; j < merges; ++j) accumulate(acc(j), sum, 1);
      accumulate(sum, acc(merges), 0);
    }
    if (!last()) return;
    int low = std::countr_zero(static_cast<uint64_t>(plan_.accumulation));
    for (int level = low + 1; level <= plan_.grad_top(); ++level) {
      if ((plan_.accumulation >> level & 1) == 0) continue;
      accumulate(acc(low), acc(level), 1);
      low = level;
    }
  }

  // The same of a micro-step whose number m is known at run time: the sum takes up level j when the bits 0 to
  // j of m are set, and becomes the new level j when j is the lowest bit that is not.
  void tree_by_filter(BufferId grads) {
    BufferId sum = temporary();
    sum_of_ranks(grads, sum, 0);
    auto reached = [&](int level) { return (int64_t{1} << level) - 1 < plan_.accumulation - 1; };
    for (int j = 0; reached(j + 1); ++j) {
      accumulate(acc(j), sum, 1);
      out_.back().when = {(int64_t{2} << j) - 1, (int64_t{2} << j) - 1};
    }
    for (int j = 0; reached(j); ++j) {
      accumulate(sum, acc(j), 0);
      out_.back().when = {(int64_t{2} << j) - 1, (int64_t{1} << j) - 1};
    }
  }

  // Sums of squares of the finished sum, while it is near.
  void norms() {
    const BucketState& s = plan_.buckets[bucket_];
    BufferId sum = s.sum();
    int64_t part = plan_.part(bucket_);
    push(Op::granule_norms, {flat(builder_.buffer(sum), sum, s.grad_first, part, Access::read),
                             flat(builder_.buffer(plan_.norms), plan_.norms, s.norm_first,
                                  plan_.granules(bucket_), Access::write)});
  }

  BufferId acc(int level) const { return plan_.buckets[bucket_].grad[static_cast<size_t>(level)]; }

  BufferId temporary() {
    const Buffer& model = builder_.buffer(acc(0));
    Tier tier = model.tier == Tier::device ? Tier::device : Tier::host;
    return builder_.transient(plan_.layout.buckets[bucket_].name + ".sum", DS_DTYPE_F32, model.numel, tier);
  }

  // target = the leaves of all ranks added up in f32. The sum of one rank is its own leaf, which all threads
  // widen; only there may beta be 1, which adds it to target.
  void sum_of_ranks(BufferId grads, BufferId target, int64_t beta) {
    if (plan_.levels.ranks() == 1) return accumulate(grads, target, beta);
    if (const RowTable* table = plan_.table(bucket_)) return sum_of_rows(*table, grads, target);
    if (plan_.quantization.gradients > 0) return sum_of_codes(grads, target);
    int cut = plan_.policy.grads, last = plan_.levels.depth() - 1;
    StateRef have{grads, 0, builder_.buffer(grads).numel};
    for (int level = 0; level < cut; ++level) {
      bool done = level == last;
      have = collect(Op::reduce_scatter, have, done ? target : partial(level + 1), level);
    }
    if (cut > last) return;
    for (int level = cut; level < last; ++level) {
      have = collect(Op::reduce_scatter, have, partial(level + 1), level);
    }
    have = collect(Op::all_reduce, have, cut == last ? target : partial(last), last);
    for (int level = last; level-- > cut;) {
      have = collect(Op::all_gather, have, level == cut ? target : partial(level), level);
    }
  }

  // The same sum of what each level's codes stand for: level by level every rank quantizes what it has, sends
  // each rank of the level its part, and adds up what it gets. Sums that ranks share are gathered as they
  // are.
  void sum_of_codes(BufferId grads, BufferId target) {
    int cut = plan_.policy.grads, depth = plan_.levels.depth();
    StateRef have{grads, 0, builder_.buffer(grads).numel};
    for (int level = 0; level < depth; ++level)
      have = exchange(have, level + 1 == cut && cut == depth ? target : partial(level + 1), level);
    for (int level = depth; level-- > cut;)
      have = collect(Op::all_gather, have, level == cut ? target : partial(level), level);
  }

  // The same sum of a table: every rank packs the rows that its ids name, gets those of all ranks, and adds
  // up its part of the table.
  void sum_of_rows(const RowTable& table, BufferId grads, BufferId target) {
    const std::string& name = plan_.layout.buckets[bucket_].name;
    BufferId input = plan_.inputs[table.input];
    const Buffer& ids = builder_.buffer(input);
    int64_t unit = ids.bytes() / plan_.accumulation;
    Operand named{input, micro_.number() * unit, table.ids, Access::read, false, unit};
    Operand leaf =
        param_operand(plan_, builder_, grads, table.param, Shape{table.rows, table.width}, Access::read);
    int64_t numel = table.bound * table.width;
    BufferId rows = builder_.transient(name + ".rows", plan_.compute, numel, Tier::device);
    BufferId numbers = builder_.transient(name + ".numbers", DS_DTYPE_I32, table.bound, Tier::device);
    push(Op::pack_rows, {leaf, named, matrix({rows, 0, numel}, table.width, Access::write),
                         flat(builder_.buffer(numbers), numbers, 0, table.bound, Access::write)});
    StateRef all_rows = gather_all({rows, 0, numel}), all_numbers = gather_all({numbers, 0, table.bound});
    const Buffer& to = builder_.buffer(target);
    Attrs attrs{{"ranks", int64_t{plan_.levels.ranks()}},
                {"first", plan_.part_first(bucket_, plan_.policy.grads)}};
    if (plan_.levels.depth() > 1) attrs.set("levels", plan_.levels.sizes());
    push(Op::sum_rows,
         {matrix(all_rows, table.width, Access::read),
          flat(builder_.buffer(all_numbers.buffer), all_numbers.buffer, 0, all_numbers.numel, Access::read),
          flat(to, target, 0, to.numel, Access::write)},
         std::move(attrs));
  }

  // What all ranks have, level by level, the outermost first: their parts as levels number them.
  StateRef gather_all(StateRef have) {
    for (int level = plan_.levels.depth(); level-- > 0;) {
      const Buffer own = builder_.buffer(have.buffer);
      int64_t numel = have.numel * plan_.levels.group(level).size;
      BufferId into = builder_.transient(own.name + ".all", own.dtype, numel, Tier::device);
      have = collect(Op::all_gather, have, into, level);
    }
    return have;
  }

  Operand matrix(const StateRef& ref, int64_t width, Access access) const {
    const Buffer& buffer = builder_.buffer(ref.buffer);
    Operand all = flat(buffer, ref.buffer, ref.first, ref.numel, access);
    all.type.shape = Shape{ref.numel / width, width};
    return all;
  }

  // Sums over a level of this rank's part, f32, by codes.
  StateRef exchange(const StateRef& from, BufferId into, int level) {
    int64_t bits = plan_.quantization.gradients, size = code_bytes(from.numel, bits);
    const std::string& name = plan_.layout.buckets[bucket_].name;
    BufferId codes =
        builder_.transient(fmt::format("{}.codes{}", name, level), DS_DTYPE_U8, size, Tier::device);
    BufferId theirs =
        builder_.transient(fmt::format("{}.their_codes{}", name, level), DS_DTYPE_U8, size, Tier::device);
    quantize(from, codes, level);
    StateRef have = collect(Op::all_to_all, {codes, 0, size}, theirs, level);
    const Buffer& to = builder_.buffer(into);
    push(Op::dequantize_sum,
         {flat(builder_.buffer(theirs), theirs, 0, have.numel, Access::read),
          flat(to, into, 0, to.numel, Access::write)},
         {{"bits", bits}, {"ranks", static_cast<int64_t>(plan_.levels.group(level).size)}});
    return {into, 0, to.numel};
  }

  // Errors are forgotten at the begin of a step.
  void quantize(const StateRef& from, BufferId codes, int level) {
    std::vector<Operand> operands{
        flat(builder_.buffer(from.buffer), from.buffer, 0, from.numel, Access::read)};
    Attrs attrs{{"bits", plan_.quantization.gradients}};
    if (plan_.quantization.feedback) {
      BufferId error = plan_.buckets[bucket_].errors[static_cast<size_t>(level)];
      operands.push_back(flat(builder_.buffer(error), error, 0, from.numel, Access::update));
      attrs.set("err_beta", plan_.quantization.err_beta);
      if (first()) attrs.set("reset", plan_.quantization.reset);
    }
    const Buffer& to = builder_.buffer(codes);
    operands.push_back(flat(to, codes, 0, to.numel, Access::write));
    push(Op::quantize, std::move(operands), std::move(attrs));
  }

  // f32 sums of a part of the bucket as a cut over `cut` levels has it.
  BufferId partial(int cut) {
    std::string name = fmt::format("{}.sum{}", plan_.layout.buckets[bucket_].name, cut);
    return builder_.transient(name, DS_DTYPE_F32, plan_.part(bucket_, cut), Tier::device);
  }

  StateRef collect(Op op, const StateRef& from, BufferId into, int level) {
    const Buffer& to = builder_.buffer(into);
    push(op, {flat(builder_.buffer(from.buffer), from.buffer, 0, from.numel, Access::read),
              flat(to, into, 0, to.numel, Access::write)});
    out_.back().group = plan_.levels.group(level);
    return {into, 0, to.numel};
  }

  void accumulate(BufferId from, BufferId into, int64_t beta) {
    const Buffer& a = builder_.buffer(from);
    push(Op::accumulate,
         {flat(a, from, 0, a.numel, Access::read),
          flat(builder_.buffer(into), into, 0, a.numel, beta == 0 ? Access::write : Access::update)},
         {{"beta", beta}});
  }

  void push(Op op, std::vector<Operand> operands, Attrs attrs = {}) {
    out_.push_back(make_instr(op, std::move(operands), std::move(attrs), micro_));
  }

  ProgramBuilder& builder_;
  const ZeroPlan& plan_;
  int64_t micros_;
  BucketId bucket_;
  MicroId micro_{0};
  std::vector<Instr> out_;
};

struct Ready {
  BucketId bucket;
  MicroId micro;
};

// The gradient buckets that are complete when it has run, in order of buckets.
IdVector<InstrId, std::vector<Ready>> complete_after(const Program& program, const StepBuffers& buffers) {
  IdVector<BufferId, Ready> owner(program.buffers.size());
  for (MicroId m : buffers.grads.ids()) {
    for (BucketId b : buffers.grads[m].ids()) {
      if (!buffers.grads[m][b].exists()) continue;
      owner[buffers.grads[m][b]] = {b, m};
    }
  }
  IdVector<InstrId, std::vector<Ready>> ready(program.instrs.size());
  for (InstrId i = program.instrs.last(); i.exists(); --i) {
    for (const Operand& o : program.instrs[i].operands) {
      Ready& r = owner[o.buffer];
      if (!r.bucket.exists()) continue;
      ready[i].push_back(r);
      r.bucket = none;
    }
  }
  return ready;
}

bool gathers(const Instr& in) { return in.def->kind == Kind::collective && in.def->starts_early; }

}  // namespace

void insert_reductions(Program& program, const ZeroPlan& plan, bool overlap, const StepBuffers& buffers) {
  IdVector<InstrId, std::vector<Ready>> ready = complete_after(program, buffers);
  Splice splice(program);
  ProgramBuilder builder(std::move(program));
  const IdVector<InstrId, Instr>& instrs = builder.program().instrs;
  Reducer reducer(builder, plan, std::ssize(buffers.grads));
  std::vector<Ready> pending;
  auto flush = [&](InstrId after) {
    for (const Ready& r : pending) {
      BufferId grads = buffers.grads[r.micro][r.bucket];
      for (Instr& in : reducer.reduce(r.bucket, r.micro, grads)) splice.after(after, std::move(in));
    }
    pending.clear();
  };
  IdVector<InstrId, char> gathers_follow(ready.size(), 0);  // later in the segment
  for (InstrId i = ready.last(); i > InstrId(0); --i) {
    bool same = instrs[i - 1].segment == instrs[i].segment;
    gathers_follow[i - 1] = same && (gathers_follow[i] || gathers(instrs[i]));
  }
  for (InstrId i : ready.ids()) {
    if (gathers(instrs[i])) flush(i);
    pending.insert(pending.end(), ready[i].begin(), ready[i].end());
    if (!overlap || !gathers_follow[i]) flush(i);
  }
  program = builder.take();
  splice.apply(program);
}

MicroId reduced_alike(const ZeroPlan& plan, MicroId micro) {
  if (micro == MicroId(0) || micro.number() + 1 == plan.accumulation) return micro;
  if (!plan.tree) return MicroId(1);
  int merges = std::countr_zero(static_cast<uint64_t>(micro.number()) + 1);
  return MicroId((int64_t{1} << merges) - 1);
}

void append_reduction(Program& program, const ZeroPlan& plan, BucketId bucket, MicroId micro,
                      BufferId grads) {
  Splice splice(program);
  ProgramBuilder builder(std::move(program));
  InstrId last = builder.program().instrs.last();
  for (Instr& in : Reducer(builder, plan, plan.accumulation).reduce(bucket, micro, grads))
    splice.after(last, std::move(in));
  program = builder.take();
  splice.apply(program);
}

}  // namespace ds
