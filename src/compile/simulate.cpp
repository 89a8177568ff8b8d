#include "compile/simulate.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/program/mesh.h"
#include "core/program/repeat.h"

namespace ds {
namespace {

// A collective call of one rank. The comm queue works in order, so the list of its calls describes
// a rank.
struct Call {
  InstrId instr;
  int32_t round = 0, rounds = 1;
};

std::vector<Call> calls_of(const Program& program) {
  std::vector<Call> out;
  ShortRun run(program);
  for (int32_t n = 0; n < run.size(); ++n) {
    ShortRun::Entry entry = run.at(n);
    if (program.instrs[entry.instr].queue == Queue::comm)
      out.push_back({entry.instr, entry.round, program.rounds(entry.instr)});
  }
  return out;
}

class Simulation {
 public:
  explicit Simulation(std::span<const Program* const> ranks)
      : ranks_(ranks), next_(ranks.size(), 0) {
    // Ranks may share a program, whose list of calls is then built once.
    std::map<const Program*, size_t> known;
    for (const Program* program : ranks) {
      auto [it, first] = known.try_emplace(program, lists_.size());
      if (first) lists_.push_back(calls_of(*program));
      list_of_.push_back(it->second);
    }
  }

  // A rank that arrives at a collective waits there. When the last rank of the group arrives, all
  // ranks of the group move on to their next collectives. If ranks still wait when no rank can
  // move, the program hangs.
  void run() {
    std::vector<size_t> arriving;
    for (size_t r = ranks_.size(); r-- > 0;) arriving.push_back(r);
    while (!arriving.empty()) {
      size_t rank = arriving.back();
      arriving.pop_back();
      const Instr* in = at(rank);
      if (!in) continue;
      std::vector<size_t>& here = waiting_[{first_of(rank, in->group), in->group}];
      here.push_back(rank);
      if (here.size() < static_cast<size_t>(in->group.size)) continue;
      for (size_t member : here) {
        if (!alike(here[0], member)) fail("the calls that meet differ");
      }
      for (size_t member : here) ++next_[member];
      arriving.insert(arriving.end(), here.begin(), here.end());
      here.clear();
    }
    for (const auto& [group, here] : waiting_) {
      if (!here.empty()) fail("ranks wait forever");
    }
  }

 private:
  const std::vector<Call>& list(size_t rank) const { return lists_[list_of_[rank]]; }

  // Returns the collective that a rank has reached, or null if the rank has ended.
  const Instr* at(size_t rank) const {
    size_t next = next_[rank];
    return next < list(rank).size() ? &ranks_[rank]->instrs[list(rank)[next].instr] : nullptr;
  }

  // Returns the first rank of the group of this form to which a rank belongs.
  size_t first_of(size_t rank, RankGroup group) const {
    auto stride = static_cast<size_t>(group.stride), size = static_cast<size_t>(group.size);
    ensure(size > 0 && stride > 0 && ranks_.size() % (size * stride) == 0,
           "{} ranks have no groups {}", ranks_.size(), group.name());
    return rank - rank / stride % size * stride;
  }

  // Returns whether the next calls of two ranks match. Sizes are compared only through the types of
  // operands.
  bool alike(size_t a, size_t b) const {
    const Instr &x = *at(a), &y = *at(b);
    const Call &c = list(a)[next_[a]], &d = list(b)[next_[b]];
    bool same = x.def == y.def && x.comm_order == y.comm_order && c.round == d.round &&
                c.rounds == d.rounds && x.operands.size() == y.operands.size();
    for (size_t k = 0; same && k < x.operands.size(); ++k)
      same = x.operands[k].type == y.operands[k].type;
    return same;
  }

  std::string text(size_t rank) const {
    const Instr* in = at(rank);
    if (!in) return fmt::format("rank {} has ended", rank);
    const Program& p = *ranks_[rank];
    const Call& call = list(rank)[next_[rank]];
    std::string round =
        call.rounds > 1 ? fmt::format(" in round {} of {}", call.round, call.rounds) : "";
    return fmt::format("rank {} is at instruction {}{}, {} {} #{} of group {}", rank, call.instr,
                       round, in->def->name, p.buffers[in->operands.back().buffer].name,
                       in->comm_order, in->group.name());
  }

  [[noreturn]] void fail(const char* reason) const {
    constexpr size_t kShown = 16;
    std::string all;
    for (size_t r = 0; r < std::min(ranks_.size(), kShown); ++r) all += "; " + text(r);
    if (ranks_.size() > kShown) all += fmt::format("; and {} more", ranks_.size() - kShown);
    raise(DS_ERROR_INTERNAL, "the collectives of program {} do not fit together: {}{}",
          ranks_[0]->name, reason, all);
  }

  std::span<const Program* const> ranks_;
  std::vector<std::vector<Call>> lists_;
  // For each rank, the index of its list of calls, and the position of its next call in that list.
  std::vector<size_t> list_of_, next_;
  // The ranks that wait in each group. A group is identified by its first rank and its form.
  std::map<std::pair<size_t, RankGroup>, std::vector<size_t>> waiting_;
};

}  // namespace

void simulate(std::span<const Program* const> ranks) {
  if (!ranks.empty()) Simulation(ranks).run();
}

}  // namespace ds
