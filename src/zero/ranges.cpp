#include <algorithm>

#include "core/base/error.h"
#include "zero/insert.h"

namespace ds {
namespace {

struct Range {
  size_t bucket;
  size_t first, last;  // instruction indices
};

// Use sites of one bucket, and where they are cut.
struct Uses {
  std::vector<size_t> at;
  std::vector<char> leased;  // leased[i]: when at[i] comes, a delegate host holds what it saw before
  std::vector<char> cut;     // cut[i]: a new range begins at at[i]
};

class Ranger {
 public:
  Ranger(const Program& program, const ZeroPlan& plan, const ZeroConfig& zero, const StepBuffers& buffers)
      : program_(program),
        plan_(plan),
        zero_(zero),
        uses_(plan.buckets.size()),
        sites_(program.instrs.size()) {
    std::vector<int32_t> bucket_of(program.buffers.size(), -1);
    for (size_t b = 0; b < plan.buckets.size(); ++b) {
      if (plan.buckets[b].partitioned)
        bucket_of[static_cast<size_t>(buffers.full[b])] = static_cast<int32_t>(b);
    }
    std::vector<int64_t> leases(plan.buckets.size(), 0);
    for (size_t i = 0; i < program.instrs.size(); ++i) {
      Op op = program.instrs[i].def->op;
      for (const Operand& o : program.instrs[i].operands) {
        int32_t b = bucket_of[static_cast<size_t>(o.buffer)];
        if (b < 0) continue;
        use(i, static_cast<size_t>(b), leases[static_cast<size_t>(b)] > 0);
        leases[static_cast<size_t>(b)] += op == Op::lease ? 1 : op == Op::release ? -1 : 0;
      }
    }
  }

  std::vector<Range> run() {
    cut_by_distance();
    cut_by_live();
    std::vector<Range> ranges;
    for (size_t b = 0; b < uses_.size(); ++b) {
      const Uses& u = uses_[b];
      for (size_t i = 0; i < u.at.size(); ++i) {
        if (u.cut[i]) ranges.push_back({b, u.at[i], u.at[i]});
        ranges.back().last = u.at[i];
      }
    }
    return ranges;
  }

 private:
  int64_t numel(size_t bucket) const { return plan_.layout.buckets[bucket].numel; }

  void use(size_t instr, size_t bucket, bool leased) {
    Uses& uses = uses_[bucket];
    if (!uses.at.empty() && uses.at.back() == instr) return;
    uses.at.push_back(instr);
    uses.leased.push_back(leased);
    sites_[instr].push_back(bucket);
  }

  // passed[i]: elements of buckets that came into use before instruction i.
  void cut_by_distance() {
    std::vector<int64_t> passed(program_.instrs.size() + 1, 0);
    size_t previous = SIZE_MAX;
    for (size_t i = 0; i < sites_.size(); ++i) {
      passed[i + 1] = passed[i];
      for (size_t b : sites_[i]) {
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

  // Walks the program with the set of live buckets; evicts the one with the farthest next use.
  void cut_by_live() {
    next_.assign(uses_.size(), 0);
    live_.assign(uses_.size(), 0);
    for (size_t i = 0; i < sites_.size(); ++i) {
      if (sites_[i].empty()) continue;
      enter(i);
      while (total_ > zero_.max_live_parameters && evict(i)) {
      }
      for (size_t b : sites_[i]) {
        Uses& u = uses_[b];
        ++next_[b];
        if (next_[b] == u.at.size() || u.cut[next_[b]]) drop(b);
      }
    }
  }

  void enter(size_t i) {
    int64_t need = 0;
    for (size_t b : sites_[i]) {
      need += numel(b);
      if (!live_[b]) total_ += numel(b);
      live_[b] = 1;
    }
    bool of_host = program_.instrs[i].def->kind == Kind::event;
    if (need > zero_.max_live_parameters && !of_host) {
      raise(DS_ERROR_CONFIG,
            "zero_optimization.stage3_max_live_parameters is {}, but '{}' alone needs {} elements",
            zero_.max_live_parameters, program_.instrs[i].def->name, need);
    }
  }

  void drop(size_t bucket) {
    live_[bucket] = 0;
    total_ -= numel(bucket);
  }

  // False when only leases are left: what a host holds at once is its own decision.
  bool evict(size_t i) {
    size_t victim = SIZE_MAX, far = 0;
    for (size_t b = 0; b < uses_.size(); ++b) {
      bool needed = std::find(sites_[i].begin(), sites_[i].end(), b) != sites_[i].end();
      if (!live_[b] || needed) continue;
      size_t at = uses_[b].at[next_[b]];
      if (uses_[b].leased[next_[b]]) continue;
      if (victim == SIZE_MAX || at > far) {
        victim = b;
        far = at;
      }
    }
    if (victim == SIZE_MAX) return false;
    uses_[victim].cut[next_[victim]] = 1;
    drop(victim);
    return true;
  }

  const Program& program_;
  const ZeroPlan& plan_;
  const ZeroConfig& zero_;
  std::vector<Uses> uses_;
  std::vector<std::vector<size_t>> sites_;  // buckets used by each instruction
  std::vector<size_t> next_;                // per bucket: index in Uses::at of its next use
  std::vector<char> live_;
  int64_t total_ = 0;
};

}  // namespace

void insert_gathers(Program& program, const ZeroPlan& plan, const ZeroConfig& zero,
                    const StepBuffers& buffers) {
  std::vector<Range> ranges = Ranger(program, plan, zero, buffers).run();
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.first < b.first; });
  Splice splice(program);
  ProgramBuilder builder(std::move(program));
  for (const Range& range : ranges) {
    const Bucket& bucket = plan.layout.buckets[range.bucket];
    BufferId full = builder.transient(bucket.name + ".full", plan.compute, bucket.numel, Tier::device);
    for (Instr& gather : gather_bucket(builder, plan, range.bucket, full)) {
      gather.micro = builder.program().instrs[range.first].micro;
      splice.before(range.first, std::move(gather));
    }
    for (size_t i = range.first; i <= range.last; ++i) {
      for (Operand& o : builder.program().instrs[i].operands) {
        if (o.buffer == buffers.full[range.bucket]) o.buffer = full;
      }
    }
  }
  program = builder.take();
  splice.apply(program);
}

}  // namespace ds
