// Problem. In each micro-step backward leaves a gradient of every bucket on every rank, in the
// compute type. Wanted is their sum over ranks and micro-steps in f32, of the part that this rank
// updates. The order of the additions must depend on nothing but the numbers of ranks and
// micro-steps, so that every stage, tier, bucket size and grouping of ranks gives the same bits.
//
// Invariant. Within a micro-step gradients are added as a tree over neighbouring ranks
// (comm/reduction.h). The levels of ranks are blocks of a power of two, so adding level by level
// makes the same tree. Behind micro-step m an accumulator holds the sum of micro-steps 0 to m; with
// `reproducible` there is one for each bit of m + 1, and accumulator j holds a sum of 2^j
// micro-steps. Sums are f32 and are never rounded to the compute type in between; with another
// data_types.grad_accum_dtype the sum behind each micro-step is rounded to it. With reduction
// "boundary" the two sums change places: an accumulator holds the sum of this rank's own
// micro-steps 0 to m, and the tree over ranks is of those sums.
//
// Algorithm. A bucket is reduced as soon as its last gradient has been written, so that gradients
// of a whole model never exist at once (insert_reductions).
//  1. Over ranks: gradients are rounded to communication_data_type where that is another type, on a
//  single
//     rank, too, so that its bits are those of several. Then, for each level, from the innermost to
//     the outermost, a reduce_scatter leaves a rank the sum of its part. Levels over which
//     gradients are not cut are reduced in the same way, the last by an all_reduce, and their parts
//     are then gathered again (sum_of_ranks). Quantized gradients go as codes by all_to_all and are
//     added by the receiver (sum_of_codes); gradients of a table as the rows that were touched
//     (sum_of_rows).
//  2. Over micro-steps: in their order, into one accumulator. With `reproducible`, as a binary
//  counter is
//     incremented: the new sum takes up accumulators 0, 1, ... as the carry does, and becomes the
//     first that was free (tree). Together with the tree over ranks that is one tree over all
//     leaves. At the boundary this comes first, whole on each rank, and 1. takes up its sum, once,
//     in the last micro-step (at_boundary): there sums, not leaves, are rounded to what travels.
//  3. In the last micro-step the squares of the finished sum are added for each granule while it is
//  near.
//
// Cost. For a bucket cut over W ranks and micro-step a rank receives (W - 1) / W of its elements,
// at the first level in the compute type, further out in f32; a sum is read and written once more
// to accumulate. At the boundary a rank receives that once a step, and a gradient is read and added
// where it was made. The binary counter costs log2 of the micro-steps in accumulators and less than
// one more addition for each micro-step.
//
// Sources. Pairwise summation, whose error grows with the logarithm of the number of terms: Higham,
// "The accuracy of floating point summation" (SIAM J. Sci. Comput. 14, 1993). Codes by all_to_all:
// ZeRO++ (arXiv:2306.10209), docs/adr/0016. Rows: docs/adr/0017.
#include "zero/reduce.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <iterator>
#include <string>
#include <vector>

#include "core/program/builder.h"
#include "core/program/codes.h"
#include "zero/row_tables.h"

namespace ds {
namespace {

// Instructions that reduce one gradient bucket of one micro-step into the accumulators.
class Reducer {
 public:
  // The program has `micros` micro-steps: all of a step, or the first ones and the last
  // (StepBuffers::grads). own_norms: StepBuffers::own_norms.
  Reducer(ProgramBuilder& builder, const ZeroPlan& plan, int64_t micros, BufferId own_norms)
      : builder_(builder), plan_(plan), micros_(micros), own_norms_(own_norms) {}

  std::vector<Instr> reduce(BucketId bucket, MicroId micro, BufferId grads) {
    out_.clear();
    bucket_ = bucket;
    micro_ = micro;
    if (plan_.tree) {
      any_of_middle() ? tree_by_filter(grads) : tree(grads);
    } else if (plan_.boundary && !own_norms_.exists()) {
      at_boundary(grads);
    } else if (alone() || (first() && wide())) {
      sum_of_ranks(grads, acc(0), first() ? 0 : 1);
    } else {
      BufferId sum = temporary();
      sum_of_ranks(grads, sum, 0);
      accumulate(sum, acc(0), first() ? 0 : 1);
    }
    if (last()) norms();
    return std::move(out_);
  }

 private:
  bool first() const { return micro_ == MicroId(0); }
  bool last() const { return micro_.number() + 1 == micros_; }
  bool wide() const { return builder_.buffer(acc(0)).dtype == DS_DTYPE_F32; }
  bool alone() const { return own_norms_.exists() || plan_.levels(bucket_).ranks() == 1; }
  // What stands for several micro-steps must not depend on which of them it is.
  bool any_of_middle() const { return micros_ < plan_.accumulation && !first() && !last(); }

  // This rank's own sum; in the last micro-step that of all ranks takes its place.
  void at_boundary(BufferId grads) {
    accumulate(grads, acc(0), first() ? 0 : 1);
    if (!last()) return;
    const bool rounded = plan_.wire != plan_.sums, exact = !rounded || plan_.wire == DS_DTYPE_F32;
    if (alone() && exact) return;
    // A collective does not write what it reads.
    const bool apart = rounded || plan_.table(bucket_) || plan_.levels(bucket_).depth() > 1;
    if (alone() || (wide() && apart)) return sum_of_ranks(acc(0), acc(0), 0);
    BufferId sum = temporary();
    sum_of_ranks(acc(0), sum, 0);
    accumulate(sum, acc(0), 0);
  }

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

  // The same of a micro-step whose number m is known at run time: the sum takes up level j when the
  // bits 0 to j of m are set, and becomes the new level j when j is the lowest bit that is not.
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
    if (own_norms_.exists()) {
      const Bucket& b = plan_.layout.buckets[bucket_];
      return push(Op::granule_norms, {s.sum(), 0, b.numel},
                  {own_norms_, own_norm_first(plan_, bucket_), b.numel / b.granule});
    }
    push(Op::granule_norms, {s.sum(), s.grad_first, plan_.part_numel(bucket_)},
         {plan_.norms, s.norm_first, plan_.granules(bucket_)});
  }

  BufferId acc(int level) const { return plan_.buckets[bucket_].grad[static_cast<size_t>(level)]; }

  BufferId temporary() {
    const Buffer& model = builder_.buffer(acc(0));
    Tier tier = model.tier == Tier::device ? Tier::device : Tier::host;
    return builder_.transient(plan_.layout.buckets[bucket_].name + ".sum", DS_DTYPE_F32,
                              model.numel, tier);
  }

  // target = the leaves of all ranks added up in f32. The sum of one rank, or of one that keeps its
  // gradients to itself, is its own leaf, which all threads widen; only there may beta be 1, which
  // adds it to target.
  void sum_of_ranks(BufferId grads, BufferId target, int64_t beta) {
    if (own_norms_.exists()) return accumulate(grads, target, beta);
    if (const RowTable* table = plan_.table(bucket_)) return sum_of_rows(*table, grads, target);
    if (plan_.quantization.gradients > 0) return sum_of_codes(grads, target);
    StateRef have = as_they_travel(all_of(builder_, grads)), all = all_of(builder_, target);
    if (alone()) return accumulate(have.buffer, target, beta);
    int cut = plan_.policy(bucket_).grads, last = plan_.levels(bucket_).depth() - 1;
    for (int level = 0; level < cut; ++level) {
      have = collect(Op::reduce_scatter, have, level == last ? all : partial(level + 1), level);
    }
    if (cut > last) return;
    for (int level = cut; level < last; ++level) {
      have = collect(Op::reduce_scatter, have, partial(level + 1), level);
    }
    have = collect(Op::all_reduce, have, cut == last ? all : partial(last), last);
    for (int level = last; level-- > cut;) {
      have = collect(Op::all_gather, have, level == cut ? all : partial(level), level);
    }
  }

  StateRef as_they_travel(const StateRef& grads) {
    if (builder_.buffer(grads.buffer).dtype == plan_.wire) return grads;
    StateRef rounded =
        transient(plan_.layout.buckets[bucket_].name + ".wire", plan_.wire, grads.numel);
    out_.push_back(cast_instr({flat_operand(builder_, grads, Access::read),
                               flat_operand(builder_, rounded, Access::write)},
                              plan_.wire, micro_));
    return rounded;
  }

  // The same sum of what each level's codes stand for: level by level every rank quantizes what it
  // has, sends each rank of the level its part, and adds up what it gets. Sums that ranks share are
  // gathered as they are.
  void sum_of_codes(BufferId grads, BufferId target) {
    int cut = plan_.policy(bucket_).grads, depth = plan_.levels(bucket_).depth();
    StateRef have = all_of(builder_, grads), all = all_of(builder_, target);
    for (int level = 0; level < depth; ++level)
      have = exchange(have, level + 1 == cut && cut == depth ? all : partial(level + 1), level);
    for (int level = depth; level-- > cut;)
      have = collect(Op::all_gather, have, level == cut ? all : partial(level), level);
  }

  // The same sum of a table: every rank packs the rows that its ids name, gets those of all ranks,
  // and adds up its part of the table.
  void sum_of_rows(const RowTable& table, BufferId grads, BufferId target) {
    const std::string& name = plan_.layout.buckets[bucket_].name;
    BufferId input = plan_.inputs[table.input];
    const Buffer& ids = builder_.buffer(input);
    int64_t unit = ids.bytes() / plan_.accumulation;
    // At the boundary those of all micro-steps. Where one has fewer rows than it may have, ids of
    // an earlier step stay behind them: rows that they name are sent, too, and are 0.
    Operand named =
        plan_.boundary
            ? flat_operand(builder_, all_of(builder_, input), Access::read)
            : Operand{input, micro_.number() * unit, table.ids, Access::read, false, unit};
    Operand leaf = param_operand(plan_, builder_, grads, table.param,
                                 Shape{table.rows, table.width}, Access::read);
    StateRef rows =
        transient(name + ".rows", builder_.buffer(grads).dtype, table.bound * table.width);
    StateRef numbers = transient(name + ".numbers", DS_DTYPE_I32, table.bound);
    push(Op::pack_rows, {leaf, named, matrix(rows, table.width, Access::write),
                         flat_operand(builder_, numbers, Access::write)});
    StateRef all_rows = gather_all(as_they_travel(rows)), all_numbers = gather_all(numbers);
    Attrs attrs{{"ranks", int64_t{plan_.levels(bucket_).ranks()}},
                {"first", plan_.part_first(bucket_, plan_.policy(bucket_).grads)}};
    if (plan_.levels(bucket_).depth() > 1) attrs.set("levels", plan_.levels(bucket_).sizes());
    push(Op::sum_rows,
         {matrix(all_rows, table.width, Access::read),
          flat_operand(builder_, all_numbers, Access::read),
          flat_operand(builder_, all_of(builder_, target), Access::write)},
         std::move(attrs));
  }

  // What all ranks have, level by level, the outermost first: their parts as levels number them.
  StateRef gather_all(StateRef have) {
    for (int level = plan_.levels(bucket_).depth(); level-- > 0;) {
      const Buffer own = builder_.buffer(have.buffer);
      int64_t numel = have.numel * plan_.levels(bucket_).group(level).size;
      have = collect(Op::all_gather, have, transient(own.name + ".all", own.dtype, numel), level);
    }
    return have;
  }

  Operand matrix(const StateRef& ref, int64_t width, Access access) const {
    Operand all = flat_operand(builder_, ref, access);
    all.type.shape = Shape{ref.numel / width, width};
    return all;
  }

  // Sums over a level of this rank's part, f32, by codes.
  StateRef exchange(const StateRef& from, const StateRef& into, int level) {
    int64_t bits = plan_.quantization.gradients, size = code_bytes(from.numel, bits);
    const std::string& name = plan_.layout.buckets[bucket_].name;
    StateRef codes = transient(fmt::format("{}.codes{}", name, level), DS_DTYPE_U8, size);
    StateRef theirs = transient(fmt::format("{}.their_codes{}", name, level), DS_DTYPE_U8, size);
    quantize(from, codes, level);
    collect(Op::all_to_all, codes, theirs, level);
    push(
        Op::dequantize_sum, theirs, into,
        {{"bits", bits}, {"ranks", static_cast<int64_t>(plan_.levels(bucket_).group(level).size)}});
    return into;
  }

  // Errors are forgotten at the begin of a step.
  void quantize(const StateRef& from, const StateRef& codes, int level) {
    std::vector<Operand> operands{flat_operand(builder_, from, Access::read)};
    Attrs attrs{{"bits", plan_.quantization.gradients}};
    if (plan_.quantization.feedback) {
      StateRef error{plan_.buckets[bucket_].errors[static_cast<size_t>(level)], 0, from.numel};
      operands.push_back(flat_operand(builder_, error, Access::update));
      attrs.set("err_beta", plan_.quantization.err_beta);
      if (first()) attrs.set("reset", plan_.quantization.reset);
    }
    operands.push_back(flat_operand(builder_, codes, Access::write));
    push(Op::quantize, std::move(operands), std::move(attrs));
  }

  // f32 sums of a part of the bucket as a cut over `cut` levels has it.
  StateRef partial(int cut) {
    std::string name = fmt::format("{}.sum{}", plan_.layout.buckets[bucket_].name, cut);
    return transient(name, DS_DTYPE_F32, plan_.part_numel(bucket_, cut));
  }

  StateRef transient(const std::string& name, DType dtype, int64_t numel) {
    return {builder_.transient(name, dtype, numel, Tier::device), 0, numel};
  }

  StateRef collect(Op op, const StateRef& from, const StateRef& into, int level) {
    push(op, from, into);
    out_.back().group = plan_.levels(bucket_).group(level);
    return into;
  }

  void accumulate(BufferId from, BufferId into, int64_t beta) {
    StateRef all = all_of(builder_, from);
    push(Op::accumulate,
         {flat_operand(builder_, all, Access::read),
          flat_operand(builder_, {into, 0, all.numel}, beta == 0 ? Access::write : Access::update)},
         {{"beta", beta}});
  }

  void push(Op op, const StateRef& from, const StateRef& to, Attrs attrs = {}) {
    push(op,
         {flat_operand(builder_, from, Access::read), flat_operand(builder_, to, Access::write)},
         std::move(attrs));
  }

  void push(Op op, std::vector<Operand> operands, Attrs attrs = {}) {
    out_.push_back(make_instr(op, std::move(operands), std::move(attrs), micro_));
  }

  ProgramBuilder& builder_;
  const ZeroPlan& plan_;
  int64_t micros_;
  BufferId own_norms_;
  BucketId bucket_;
  MicroId micro_{0};
  std::vector<Instr> out_;
};

struct Ready {
  BucketId bucket;
  MicroId micro;
};

// The gradient buckets that are complete when it has run, in order of buckets.
IdVector<InstrId, std::vector<Ready>> complete_after(const Program& program,
                                                     const StepBuffers& buffers) {
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

// Puts reductions behind the instructions that complete their buckets. With overlap a reduction is
// late by a little: it starts behind the next gather of parameters, which is more urgent, and what
// kernels do with its sum waits until the next reduction has started, so that they do not stand
// still for it.
class ReductionInserter {
 public:
  ReductionInserter(Program& program, const ZeroPlan& plan, bool overlap,
                    const StepBuffers& buffers)
      : ready_(complete_after(program, buffers)),
        splice_(program),
        builder_(std::move(program)),
        reducer_(builder_, plan, std::ssize(buffers.grads), buffers.own_norms),
        plan_(plan),
        overlap_(overlap),
        buffers_(buffers) {}

  void run(Program& program) {
    const IdVector<InstrId, Instr>& instrs = builder_.program().instrs;
    IdVector<InstrId, char> gathers_follow(ready_.size(), 0);  // later in the segment
    for (InstrId i = ready_.last(); i > InstrId(0); --i) {
      bool same = instrs[i - 1].segment == instrs[i].segment;
      gathers_follow[i - 1] = same && (gathers_follow[i] || gathers(instrs[i]));
    }
    for (InstrId i : ready_.ids()) {
      if (gathers(instrs[i])) start(i);
      pending_.insert(pending_.end(), ready_[i].begin(), ready_[i].end());
      if (!overlap_ || !gathers_follow[i]) start(i);
      if (stops_behind(i)) finish(i, 0);
    }
    program = builder_.take();
    splice_.apply(program);
  }

 private:
  static constexpr size_t kUnfinished = 2;

  void start(InstrId after) {
    for (const Ready& r : pending_) {
      std::vector<Instr> all =
          reducer_.reduce(r.bucket, r.micro, buffers_.grads[r.micro][r.bucket]);
      auto rest = std::find_if(all.rbegin(), all.rend(), [](const Instr& in) {
                    return in.def->kind == Kind::collective;
                  }).base();
      if (plan_.boundary &&
          rest == all.begin()) {  // nothing is on its way that its kernels could wait for
        for (Instr& in : all) splice_.after(after, std::move(in));
        continue;
      }
      for (auto in = all.begin(); in != rest; ++in) splice_.after(after, std::move(*in));
      unfinished_.emplace_back(std::make_move_iterator(rest), std::make_move_iterator(all.end()));
      finish(after, overlap_ && on_device(r.bucket) ? kUnfinished : 0);
    }
    pending_.clear();
  }

  // A segment ends there, or what the host program does follows.
  bool stops_behind(InstrId i) {
    const IdVector<InstrId, Instr>& instrs = builder_.program().instrs;
    if (i == ready_.last()) return true;
    return instrs[i + 1].segment != instrs[i].segment || instrs[i + 1].def->kind == Kind::event;
  }

  // Elsewhere kernels of the host take the sums up, for which compute does not wait.
  bool on_device(BucketId bucket) const {
    return builder_.buffer(plan_.buckets[bucket].sum()).tier == Tier::device;
  }

  // All but the latest few.
  void finish(InstrId after, size_t left) {
    while (unfinished_.size() > left) {
      for (Instr& in : unfinished_.front()) splice_.after(after, std::move(in));
      unfinished_.pop_front();
    }
  }

  IdVector<InstrId, std::vector<Ready>> ready_;
  Splice splice_;
  ProgramBuilder builder_;
  Reducer reducer_;
  const ZeroPlan& plan_;
  bool overlap_;
  const StepBuffers& buffers_;
  std::vector<Ready> pending_;
  std::deque<std::vector<Instr>> unfinished_;  // what is behind the collectives of a reduction
};

}  // namespace

void insert_reductions(Program& program, const ZeroPlan& plan, bool overlap,
                       const StepBuffers& buffers) {
  ReductionInserter(program, plan, overlap, buffers).run(program);
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
  for (Instr& in : Reducer(builder, plan, plan.accumulation, none).reduce(bucket, micro, grads))
    splice.after(last, std::move(in));
  program = builder.take();
  splice.apply(program);
}

}  // namespace ds
