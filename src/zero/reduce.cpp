// Problem. In each micro-step backward leaves a gradient of every bucket on every rank, in the
// compute type. The update needs their sum over ranks and micro-steps in f32, for the part that
// this rank updates. The order of the additions must depend only on the numbers of ranks and
// micro-steps, so that every stage, tier, bucket size and grouping of ranks gives the same bits.
//
// Invariant. Within a micro-step gradients are added as a tree over neighbouring ranks
// (comm/reduction.h). The levels of ranks are blocks of a power of two, so adding level by level
// produces the same tree. After micro-step m an accumulator holds the sum of micro-steps 0 to m;
// with `reproducible` there is one for each bit of m + 1, and accumulator j holds a sum of 2^j
// micro-steps. Sums are f32 and are never rounded to the compute type in between; with another
// data_types.grad_accum_dtype the sum after each micro-step is rounded to it. With reduction
// "boundary" the two sums are swapped: an accumulator holds the sum of this rank's own micro-steps
// 0 to m, and the tree over ranks adds those sums.
//
// Algorithm. A bucket is reduced as soon as its last gradient has been written, so that gradients
// of a whole model never exist at once (insert_reductions).
//  1. Over ranks: gradients are rounded to communication_data_type if that is another type. A
//     single rank rounds them, too, so that it computes the same bits as several ranks. Then, for
//     each level, from the innermost to the outermost, a reduce_scatter leaves a rank the sum of
//     its part. Levels over which gradients are not cut are reduced in the same way, except that
//     the last one uses an all_reduce, and their parts are then gathered again (sum_of_ranks).
//     Quantized gradients are sent as codes by all_to_all and are added by the receiver
//     (sum_of_codes); gradients of a row table are sent as the rows that were touched
//     (sum_of_rows).
//  2. Over micro-steps: sums are added in order into one accumulator. With `reproducible`, they are
//     added as a binary counter is incremented: the new sum absorbs accumulators 0, 1, ... like a
//     carry and is stored in the first one that was free (tree). Together with the tree over ranks,
//     that is one tree over all leaves. With reduction "boundary", step 2 comes first, over whole
//     buckets, and step 1 reduces its result once, in the last micro-step (at_boundary), so sums
//     and not leaves are rounded to the type that travels.
//  3. In the last micro-step the squares of the finished sum are added for each granule while the
//     sum is in the cache.
//
// Cost. In each micro-step a rank receives (W - 1) / W of the elements of a bucket that is cut over
// W ranks, at the first level in the compute type, further out in f32; a sum is read and written
// once more to accumulate. With reduction "boundary", a rank receives that much once per step and
// adds its own gradients locally. The binary counter costs log2 of the micro-steps in accumulators
// and less than one more addition for each micro-step.
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
#include <set>
#include <string>
#include <vector>

#include "core/config/core_sections.h"
#include "core/program/builder.h"
#include "core/program/codes.h"
#include "zero/row_tables.h"

namespace ds {
namespace {

// Creates the instructions that reduce one gradient bucket of one micro-step into the accumulators.
class Reducer {
 public:
  // The program has `micros` micro-steps: all `total` of a step, or the first, one that is
  // repeated, and the last (StepBuffers::grads). `own_norms` is StepBuffers::own_norms.
  Reducer(ProgramBuilder& builder, const ZeroPlan& plan, int64_t micros, int64_t total,
          BufferId own_norms)
      : builder_(builder), plan_(plan), micros_(micros), total_(total), own_norms_(own_norms) {}

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
  // Returns whether accumulators are f32, so that a sum can be written to them without rounding.
  bool wide() const { return builder_.buffer(acc(0)).dtype == DS_DTYPE_F32; }
  // Returns whether only this rank's own sum is needed, because the bucket has a single rank or
  // gradients stay on their rank.
  bool alone() const { return own_norms_.exists() || plan_.levels(bucket_).ranks() == 1; }
  // Returns whether this micro-step represents all micro-steps in the middle of a step, because the
  // program repeats it. Its instructions must not depend on the index of the micro-step.
  bool any_of_middle() const { return micros_ < total_ && !first() && !last(); }

  // Adds the gradients to this rank's own sum. In the last micro-step the sum over all ranks
  // replaces the rank's own.
  void at_boundary(BufferId grads) {
    accumulate(grads, acc(0), first() ? 0 : 1);
    if (!last()) return;
    const DType wire = plan_.wire_of(bucket_);
    const bool rounded = wire != plan_.sums, exact = !rounded || wire == DS_DTYPE_F32;
    // A single rank still rounds its sum to the type that would travel, to compute the same bits as
    // several ranks.
    if (alone() && exact) return;
    // A collective must not write the buffer that it reads. So the accumulator can be both source
    // and target only if sums are first rounded or packed, or pass through the buffer of a level.
    const bool apart = rounded || plan_.table(bucket_) || plan_.levels(bucket_).depth() > 1;
    if (alone() || (wide() && apart)) return sum_of_ranks(acc(0), acc(0), 0);
    BufferId sum = temporary();
    sum_of_ranks(acc(0), sum, 0);
    accumulate(sum, acc(0), 0);
  }

  // Increments the binary counter: accumulator j holds a sum of 2^j micro-steps. The carry passes
  // as many levels as `done` has trailing zeros. In the last micro-step the remaining accumulators,
  // one for each set bit of the number of micro-steps, are added from the lowest to the highest.
  void tree(BufferId grads) {
    // The number of micro-steps so far, including this one.
    int64_t done = last() ? total_ : micro_.number() + 1;
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
    int low = std::countr_zero(static_cast<uint64_t>(total_));
    for (int level = low + 1; level <= plan_.grad_top(); ++level) {
      if ((total_ >> level & 1) == 0) continue;
      accumulate(acc(low), acc(level), 1);
      low = level;
    }
    // The update reads the highest accumulator, which a step of fewer micro-steps does not reach.
    if (low < plan_.grad_top()) accumulate(acc(low), acc(plan_.grad_top()), 0);
  }

  // Like tree(), for a micro-step whose index m is known only at run time: the sum absorbs level j
  // if bits 0 to j of m are set, and is stored as the new level j if j is the lowest bit that is
  // not set. Each instruction runs only in the micro-steps that `when` accepts (MicroFilter).
  void tree_by_filter(BufferId grads) {
    BufferId sum = temporary();
    sum_of_ranks(grads, sum, 0);
    auto reached = [&](int level) { return (int64_t{1} << level) - 1 < total_ - 1; };
    for (int j = 0; reached(j + 1); ++j) {
      accumulate(acc(j), sum, 1);
      out_.back().when = {(int64_t{2} << j) - 1, (int64_t{2} << j) - 1};
    }
    for (int j = 0; reached(j); ++j) {
      accumulate(sum, acc(j), 0);
      out_.back().when = {(int64_t{2} << j) - 1, (int64_t{1} << j) - 1};
    }
  }

  // Adds the squares of the finished sum for each granule, while the sum is in the cache.
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

  // Sets `target` to the sum of the leaves of all ranks, in f32. If there is a single rank, or
  // gradients stay on their rank, the sum is the rank's own leaf, widened to f32. Only then may
  // `beta` be 1, which adds the leaf to `target`.
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

  // Returns the gradients in the type that travels, rounded if they have another type.
  StateRef as_they_travel(const StateRef& grads) {
    const DType wire = plan_.wire_of(bucket_);
    if (builder_.buffer(grads.buffer).dtype == wire) return grads;
    StateRef rounded = transient(plan_.layout.buckets[bucket_].name + ".wire", wire, grads.numel);
    out_.push_back(cast_instr({flat_operand(builder_, grads, Access::read),
                               flat_operand(builder_, rounded, Access::write)},
                              wire, micro_));
    return rounded;
  }

  // Like sum_of_ranks(), but with codes: at each level every rank quantizes its sums, sends each
  // rank of the level its part, and adds up the decoded parts that it receives. Sums over levels
  // that gradients are not cut over are then gathered in f32, without codes.
  void sum_of_codes(BufferId grads, BufferId target) {
    int cut = plan_.policy(bucket_).grads, depth = plan_.levels(bucket_).depth();
    StateRef have = all_of(builder_, grads), all = all_of(builder_, target);
    for (int level = 0; level < depth; ++level)
      have = exchange(have, level + 1 == cut && cut == depth ? all : partial(level + 1), level);
    for (int level = depth; level-- > cut;)
      have = collect(Op::all_gather, have, level == cut ? all : partial(level), level);
  }

  // Like sum_of_ranks(), but for a row table: every rank packs the rows that its ids name, receives
  // the rows of all ranks, and adds up its part of the table.
  void sum_of_rows(const RowTable& table, BufferId grads, BufferId target) {
    const std::string& name = plan_.layout.buckets[bucket_].name;
    BufferId input = plan_.memory.inputs[table.input];
    const Buffer& ids = builder_.buffer(input);
    int64_t unit = ids.bytes() / plan_.accumulation;
    // At the boundary the ids of all micro-steps name rows. If a micro-step has fewer ids than the
    // bound, ids of an earlier step follow its own, and the rows that they name are sent, too. That
    // is correct, because a row that no id of this step names is 0.
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

  // Gathers the parts of all ranks, the outermost level first, so that parts end up in the order in
  // which levels number them.
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

  // Sums this rank's part over the ranks of a level into f32; the ranks exchange codes.
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

  // Quantizes with error feedback if the level keeps an error. Every `reset` steps the error is
  // reset to 0 in the first micro-step.
  void quantize(const StateRef& from, const StateRef& codes, int level) {
    std::vector<Operand> operands{flat_operand(builder_, from, Access::read)};
    Attrs attrs{{"bits", plan_.quantization.gradients}};
    if (const HeldState* error = plan_.buckets[bucket_].find(kGradientError, level)) {
      operands.push_back(flat_operand(builder_, error->ref.slice(0, from.numel), Access::update));
      attrs.set("err_beta", plan_.quantization.err_beta);
      if (first()) attrs.set("reset", plan_.quantization.reset);
    }
    operands.push_back(flat_operand(builder_, codes, Access::write));
    push(Op::quantize, std::move(operands), std::move(attrs));
  }

  // Returns a buffer for f32 sums of this rank's part of a cut over `cut` levels.
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

  // Adds nothing if the gradients were written straight into the accumulator
  // (takes_first_gradients).
  void accumulate(BufferId from, BufferId into, int64_t beta) {
    if (from == into) return;
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
  int64_t micros_, total_;
  BufferId own_norms_;
  BucketId bucket_;
  MicroId micro_{0};
  std::vector<Instr> out_;
};

struct Ready {
  BucketId bucket;
  MicroId micro;
};

// Returns for each instruction the gradient buckets that it completes. The walk goes backwards, so
// the first use of a bucket that it finds is the last use in the bucket's micro-step. An
// accumulator that holds gradients is also used after that micro-step.
IdVector<InstrId, std::vector<Ready>> complete_after(const Program& program,
                                                     const StepBuffers& buffers) {
  IdVector<BufferId, Ready> owner(program.buffers.size());
  IdVector<MicroId, InstrId> ends(buffers.grads.size());
  for (const Segment& s : program.segments) {
    if (s.micro.exists()) ends[s.micro] = s.end;
  }
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
      if (!r.bucket.exists() || i >= ends[r.micro]) continue;
      ready[i].push_back(r);
      r.bucket = none;
    }
  }
  return ready;
}

bool gathers(const Instr& in) { return in.def->kind == Kind::collective && in.def->starts_early; }

// Puts reductions after the instructions that complete their buckets. With overlap a reduction is
// issued a little later: it starts after the next gather of parameters, which is more urgent. The
// kernels that read its sum are issued after the start of later reductions, so that compute need
// not wait for the sum.
class ReductionInserter {
 public:
  ReductionInserter(Program& program, const ZeroPlan& plan, bool overlap,
                    const StepBuffers& buffers)
      : ready_(complete_after(program, buffers)),
        splice_(program),
        builder_(std::move(program)),
        reducer_(builder_, plan, std::ssize(buffers.grads), plan.accumulation, buffers.own_norms),
        plan_(plan),
        overlap_(overlap),
        buffers_(buffers) {}

  void run(Program& program) {
    const IdVector<InstrId, Instr>& instrs = builder_.program().instrs;
    // gathers_follow[i]: a gather follows instruction i in its segment.
    IdVector<InstrId, char> gathers_follow(ready_.size(), 0);
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
  // The largest number of reductions whose kernels after the collective may be held back while
  // later reductions start.
  static constexpr size_t kUnfinished = 2;

  // Inserts the pending reductions up to their last collective. The kernels after that collective
  // are kept in unfinished_.
  void start(InstrId after) {
    for (const Ready& r : pending_) {
      std::vector<Instr> all =
          reducer_.reduce(r.bucket, r.micro, buffers_.grads[r.micro][r.bucket]);
      auto rest = std::find_if(all.rbegin(), all.rend(), [](const Instr& in) {
                    return in.def->kind == Kind::collective;
                  }).base();
      // Without a collective, kernels have nothing to wait for.
      if (plan_.boundary && rest == all.begin()) {
        for (Instr& in : all) splice_.after(after, std::move(in));
        continue;
      }
      for (auto in = all.begin(); in != rest; ++in) splice_.after(after, std::move(*in));
      unfinished_.emplace_back(std::make_move_iterator(rest), std::make_move_iterator(all.end()));
      finish(after, overlap_ && on_device(r.bucket) ? kUnfinished : 0);
    }
    pending_.clear();
  }

  // Returns whether the segment ends with instruction i or an event of the delegate host follows
  // it.
  bool stops_behind(InstrId i) {
    const IdVector<InstrId, Instr>& instrs = builder_.program().instrs;
    if (i == ready_.last()) return true;
    return instrs[i + 1].segment != instrs[i].segment || instrs[i + 1].def->kind == Kind::event;
  }

  // Returns whether the bucket's sum is on the device. Sums in other tiers are read by kernels on
  // the host queue, for which compute does not wait.
  bool on_device(BucketId bucket) const {
    return builder_.buffer(plan_.buckets[bucket].sum()).tier == Tier::device;
  }

  // Inserts the kernels of all unfinished reductions except the latest `left`.
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
  // The instructions that follow the last collective of each reduction, oldest first.
  std::deque<std::vector<Instr>> unfinished_;
};

}  // namespace

void insert_reductions(Program& program, const ZeroPlan& plan, bool overlap,
                       const StepBuffers& buffers) {
  ReductionInserter(program, plan, overlap, buffers).run(program);
}

MicroOfStep reduced_alike(const ZeroPlan& plan, const MicroOfStep& at) {
  const bool first = at.micro == MicroId(0), last = at.micro.number() + 1 == at.micros;
  if (last && (first || plan.tree)) return at;
  if (last) return {MicroId(1), 2};
  if (first) return {MicroId(0), 2};
  if (!plan.tree) return {MicroId(1), 3};
  // The instructions depend only on how far the carry goes; 2^merges - 1 is the first index with
  // `merges` trailing ones. Micro-step 0 stands only for itself, since its gradients may be in an
  // accumulator.
  const int merges = std::countr_zero(static_cast<uint64_t>(at.micro.number()) + 1);
  const int64_t alike = merges == 0 ? 2 : (int64_t{1} << merges) - 1;
  return {MicroId(alike), alike + 2};
}

std::vector<MicroOfStep> reductions(const ZeroPlan& plan) {
  std::set<MicroOfStep> all;
  for (int64_t micros : {plan.accumulation, int64_t{1}, int64_t{3}}) {
    if (micros > most_micro_steps(plan)) continue;
    for (MicroId m(0); m < MicroId(micros); ++m) all.insert(reduced_alike(plan, {m, micros}));
  }
  return {all.begin(), all.end()};
}

bool takes_first_gradients(const ZeroPlan& plan, BucketId bucket) {
  if (!plan.trains(bucket) || plan.table(bucket)) return false;
  if (plan.quantization.gradients > 0 || plan.compression.on()) return false;
  const DType own = plan.layout.buckets[bucket].dtype;
  const Buffer& into = plan.memory.buffers[plan.buckets[bucket].grad[0]];
  if (into.tier != Tier::device || into.dtype != own) return false;
  return plan.boundary || (plan.levels(bucket).ranks() == 1 && plan.wire_of(bucket) == own);
}

int64_t most_micro_steps(const ZeroPlan& plan) {
  return plan.tree ? (int64_t{2} << plan.grad_top()) - 1 : kMostAccumulation;
}

void append_reduction(Program& program, const ZeroPlan& plan, BucketId bucket,
                      const MicroOfStep& at, BufferId grads) {
  Splice splice(program);
  ProgramBuilder builder(std::move(program));
  InstrId last = builder.program().instrs.last();
  Reducer reducer(builder, plan, at.micros, at.micros, none);
  for (Instr& in : reducer.reduce(bucket, at.micro, grads)) splice.after(last, std::move(in));
  program = builder.take();
  splice.apply(program);
}

}  // namespace ds
