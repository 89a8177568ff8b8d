// Problem. In ZeRO stage 3 a rank holds only a part of each large bucket of parameters, but many
// instructions of a step read the whole bucket: in forward, in backward, in every micro-step. The
// whole model does not fit in memory at once, and a gather before every use costs too much. So the
// uses of a bucket have to be divided into ranges, each with one gather.
//
// Invariant. Every use of a partitioned bucket lies in exactly one range, and a range is a
// transient buffer of its own: a gather directly before the first use writes it, and its memory is
// free after the last use (passes/offsets.cpp). So no release can be forgotten. At no instruction
// do the buckets in ranges have more than max_live_parameters elements. This still holds after
// hoist.cpp, which moves gathers up within the same limit. The limit is soft, as it is in
// DeepSpeed: an instruction needs all buckets that it reads, and a delegate host decides itself
// which buckets it leases. Where the buckets that an instruction reads and those under lease alone
// exceed the limit, nothing else is live.
//
// Algorithm. Register allocation by live range splitting: buckets are the values, and a gather is
// the reload. At first a bucket is one range.
//  1. It is cut between two uses if buckets of more than max_reuse_distance elements came into use
//     in between (cut_by_distance).
//  2. The program is walked in order with the set of live buckets. Where they exceed
//     max_live_parameters, the range whose next use is farthest away is cut there, until the rest
//     fits (cut_by_live). That is Belady's rule. It is optimal for pages of one size; buckets
//     differ in size, so here it is a heuristic.
//  3. Each range gets its buffer and its gather (insert_gathers).
//
// Cost. Linear in the number of uses; each cut of step 2 also looks at every bucket.
//
// Source. Belady, "A study of replacement algorithms for a virtual-storage computer" (IBM Systems
// Journal 5(2), 1966). The two limits are DeepSpeed's stage3_max_reuse_distance and
// stage3_max_live_parameters.
#include "zero/ranges.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/program/builder.h"
#include "zero/gather.h"

namespace ds {
namespace {

// Consecutive uses of a bucket that one gather serves.
struct Range {
  BucketId bucket;
  InstrId first, last;
};

// Use sites of one bucket, and where they are cut.
struct Uses {
  std::vector<InstrId> at;
  // leased[i] says that a delegate host still holds a lease at instruction at[i]. The buffer that
  // the host sees must stay, so no range may begin there.
  std::vector<char> leased;
  // cut[i] says that a new range begins at instruction at[i].
  std::vector<char> cut;
};

class Ranger {
 public:
  Ranger(const Program& program, const ZeroPlan& plan, const ZeroConfig& zero,
         const StepBuffers& buffers)
      : program_(program),
        plan_(plan),
        zero_(zero),
        uses_(plan.buckets.size()),
        sites_(program.instrs.size()) {
    IdVector<BufferId, BucketId> bucket_of(program.buffers.size());
    for (BucketId b : plan.buckets.ids()) {
      if (plan.buckets[b].partitioned) bucket_of[buffers.full[b]] = b;
    }
    IdVector<BucketId, int64_t> leases(plan.buckets.size(), 0);
    for (InstrId i : program.instrs.ids()) {
      Op op = program.instrs[i].def->op;
      for (const Operand& o : program.instrs[i].operands) {
        BucketId b = bucket_of[o.buffer];
        if (!b.exists()) continue;
        use(i, b, leases[b] > 0);
        leases[b] += op == Op::lease ? 1 : op == Op::release ? -1 : 0;
      }
    }
  }

  std::vector<Range> run() {
    cut_by_distance();
    cut_by_live();
    std::vector<Range> ranges;
    for (BucketId b : uses_.ids()) {
      const Uses& u = uses_[b];
      for (size_t i = 0; i < u.at.size(); ++i) {
        if (u.cut[i]) ranges.push_back({b, u.at[i], u.at[i]});
        ranges.back().last = u.at[i];
      }
    }
    return ranges;
  }

 private:
  int64_t numel(BucketId bucket) const { return plan_.layout.buckets[bucket].numel; }

  void use(InstrId instr, BucketId bucket, bool leased) {
    Uses& uses = uses_[bucket];
    if (!uses.at.empty() && uses.at.back() == instr) return;
    uses.at.push_back(instr);
    uses.leased.push_back(leased);
    sites_[instr].push_back(bucket);
  }

  // Cuts between two uses that are more than max_reuse_distance elements apart. passed[i] is the
  // number of elements of the buckets that came into use before instruction i.
  void cut_by_distance() {
    IdVector<InstrId, int64_t> passed(program_.instrs.size() + 1, 0);
    BucketId previous;
    for (InstrId i : sites_.ids()) {
      passed[i + 1] = passed[i];
      for (BucketId b : sites_[i]) {
        if (b != previous) passed[i + 1] += numel(b);
        previous = b;
      }
    }
    for (Uses& u : uses_) {
      u.cut.assign(u.at.size(), 0);
      for (size_t i = 0; i < u.at.size(); ++i) {
        bool far = i > 0 && passed[u.at[i]] - passed[u.at[i - 1] + 1] > zero_.max_reuse_distance;
        u.cut[i] = i == 0 || (far && !u.leased[i]);
      }
    }
  }

  // Walks the program with the set of live buckets and evicts those with the farthest next use.
  void cut_by_live() {
    next_.assign(uses_.size(), 0);
    live_.assign(uses_.size(), 0);
    for (InstrId i : sites_.ids()) {
      if (sites_[i].empty()) continue;
      enter(i);
      while (total_ > zero_.max_live_parameters && evict(i)) {
      }
      for (BucketId b : sites_[i]) {
        Uses& u = uses_[b];
        ++next_[b];
        if (next_[b] == u.at.size() || u.cut[next_[b]]) drop(b);
      }
    }
  }

  void enter(InstrId i) {
    for (BucketId b : sites_[i]) {
      if (!live_[b]) total_ += numel(b);
      live_[b] = 1;
    }
  }

  void drop(BucketId bucket) {
    live_[bucket] = 0;
    total_ -= numel(bucket);
  }

  // Cuts the range with the farthest next use. Returns false if each live bucket is used by the
  // instruction or leased.
  bool evict(InstrId i) {
    BucketId victim;
    InstrId far;
    for (BucketId b : uses_.ids()) {
      bool needed = std::find(sites_[i].begin(), sites_[i].end(), b) != sites_[i].end();
      if (!live_[b] || needed) continue;
      InstrId at = uses_[b].at[next_[b]];
      if (uses_[b].leased[next_[b]]) continue;
      if (!victim.exists() || at > far) {
        victim = b;
        far = at;
      }
    }
    if (!victim.exists()) return false;
    uses_[victim].cut[next_[victim]] = 1;
    drop(victim);
    return true;
  }

  const Program& program_;
  const ZeroPlan& plan_;
  const ZeroConfig& zero_;
  IdVector<BucketId, Uses> uses_;
  // The buckets that each instruction uses.
  IdVector<InstrId, std::vector<BucketId>> sites_;
  // The index in Uses::at of each bucket's next use.
  IdVector<BucketId, size_t> next_;
  IdVector<BucketId, char> live_;
  int64_t total_ = 0;
};

}  // namespace

void insert_gathers(Program& program, const ZeroPlan& plan, const ZeroConfig& zero,
                    const StepBuffers& buffers) {
  std::vector<Range> ranges = Ranger(program, plan, zero, buffers).run();
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  Splice splice(program);
  ProgramBuilder builder(std::move(program));
  for (const Range& range : ranges) {
    const Bucket& bucket = plan.layout.buckets[range.bucket];
    BufferId full =
        builder.transient(bucket.name + ".full", bucket.dtype, bucket.numel, Tier::device);
    for (Instr& gather : gather_bucket(builder, plan, range.bucket, full)) {
      gather.micro = builder.program().instrs[range.first].micro;
      splice.before(range.first, std::move(gather));
    }
    for (InstrId i = range.first; i <= range.last; ++i) {
      for (Operand& o : builder.program().instrs[i].operands) {
        if (o.buffer == buffers.full[range.bucket]) o.buffer = full;
      }
    }
  }
  program = builder.take();
  splice.apply(program);
}

}  // namespace ds
