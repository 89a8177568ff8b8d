// Problem: a step has thousands of transient buffers, which together are far larger than the
// memory. Each lives only from its first to its last access in issue order. Each needs an offset in
// the arena of its tier, and the arenas should be small.
//
// Invariant: if one of two buffers is accessed between the first and the last access of the other,
// they have no byte in common. At run time, however, a queue may run ahead, so a buffer may get
// memory that an instruction on another queue still uses. The later pass sync.cpp turns such
// conflicts into waits. Offsets of persistent buffers depend on the list of persistent buffers
// alone, so all programs of an engine agree on them.
//
// Algorithm: persistent buffers are placed one after another. Then one walk over the instructions
// places transient buffers. A buffer that is accessed for the first time gets the smallest free
// range that holds it, or extends the arena (FreeList::take). After the last access, the range
// becomes free and is joined with adjacent free ranges (FreeList::give). A buffer that is kept
// between runs lives from the first instruction to the last. With late_reuse, a range that was last
// used by a copy or by the host queue stays in use until the next last use of a range of the same
// tier by that queue, or until the segment ends. Otherwise best fit would give the range to the
// very next buffer of the same size, and gradients that are stored, added up, updated and fetched
// would all go through one place, one at a time.
//
// Cost: one pass over all free ranges for each buffer. The arena is at least the largest sum of
// live bytes (transient_lower_bound); the tests allow 1.3 times this bound. docs/adr/0005 says why
// this algorithm was preferred to placing all buffers by size, the largest first.
//
// Source: placing by size and other strategies for the same problem are in Pisarchyk and Lee,
// "Efficient memory management for deep neural net inference" (arXiv:2001.03288).
#include "passes/offsets.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/round.h"
#include "core/base/tier.h"
#include "core/program/instruction.h"
#include "core/program/program.h"

namespace ds {
namespace {

// The free ranges of one arena. A request gets the best fit, or extends the arena at its end.
class FreeList {
 public:
  int64_t take(int64_t bytes, int64_t alignment) {
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      int64_t begin = round_up(it->first, alignment);
      if (begin + bytes > it->second) continue;
      if (best == free_.end() || it->second - it->first < best->second - best->first) best = it;
    }
    if (best == free_.end()) return grow(bytes, alignment);
    auto [low, high] = *best;
    int64_t begin = round_up(low, alignment);
    free_.erase(best);
    if (low < begin) free_[low] = begin;
    if (begin + bytes < high) free_[begin + bytes] = high;
    return begin;
  }

  void give(int64_t begin, int64_t bytes) {
    int64_t end = begin + bytes;
    auto next = free_.lower_bound(begin);
    if (next != free_.end() && next->first == end) {
      end = next->second;
      next = free_.erase(next);
    }
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->second == begin) {
        previous->second = end;
        return;
      }
    }
    free_[begin] = end;
  }

  int64_t size() const { return size_; }

 private:
  int64_t grow(int64_t bytes, int64_t alignment) {
    int64_t begin = size_;
    // A free range at the end of the arena becomes a part of the new range.
    if (!free_.empty() && std::prev(free_.end())->second == size_) {
      begin = std::prev(free_.end())->first;
      free_.erase(std::prev(free_.end()));
    }
    int64_t aligned = round_up(begin, alignment);
    if (begin < aligned) free_[begin] = aligned;
    size_ = aligned + bytes;
    return aligned;
  }

  // The ends of the free ranges by their begins.
  std::map<int64_t, int64_t> free_;
  int64_t size_ = 0;
};

// The first and the last instruction that access a buffer. The ids do not exist if no instruction
// accesses it.
struct Lifetime {
  InstrId first, last;
};

IdVector<BufferId, Lifetime> lifetimes(const Program& program) {
  IdVector<BufferId, Lifetime> out(program.buffers.size());
  for (InstrId i : program.instrs.ids()) {
    for (const Operand& o : program.instrs[i].operands) {
      Lifetime& life = out[o.buffer];
      if (!life.first.exists()) life.first = i;
      life.last = i;
    }
  }
  for (BufferId b : program.buffers.ids()) {
    if (program.buffers[b].kept() && out[b].first.exists())
      out[b] = {InstrId(0), program.instrs.last()};
  }
  return out;
}

// Marks the buffers that instructions of the read or write queue access, because file transfers
// need block alignment.
IdVector<BufferId, char> touched_by_files(const Program& program) {
  IdVector<BufferId, char> out(program.buffers.size(), 0);
  for (const Instr& in : program.instrs) {
    if (in.queue != Queue::read && in.queue != Queue::write) continue;
    for (const Operand& o : in.operands) out[o.buffer] = 1;
  }
  return out;
}

}  // namespace

void assign_offsets(Program& program, const OffsetOptions& options) {
  IdVector<BufferId, char> files = touched_by_files(program);
  auto unit = [&](BufferId b) {
    bool file = files[b] || program.buffers[b].tier == Tier::nvme;
    return file ? options.file_alignment : options.alignment;
  };
  for (ArenaSizes& a : program.arenas) a = {};
  for (BufferId b : program.buffers.ids()) {
    Buffer& buffer = program.buffers[b];
    if (buffer.residency != Residency::persistent) continue;
    int64_t& size = program.arenas[static_cast<int>(buffer.tier)].persistent;
    // Persistent offsets must be the same in every program, so they must not depend on the file
    // transfers of this program.
    int64_t align = buffer.tier == Tier::nvme ? options.file_alignment : options.alignment;
    buffer.offset = round_up(size, align);
    size = buffer.offset + round_up(buffer.bytes(), align);
  }
  IdVector<BufferId, Lifetime> lives = lifetimes(program);
  IdVector<InstrId, std::vector<BufferId>> starts(program.instrs.size()),
      ends(program.instrs.size());
  for (BufferId b : program.buffers.ids()) {
    if (program.buffers[b].residency != Residency::transient || !lives[b].first.exists()) continue;
    starts[lives[b].first].push_back(b);
    ends[lives[b].last].push_back(b);
  }
  FreeList arenas[3];
  auto give = [&](BufferId id) {
    const Buffer& buffer = program.buffers[id];
    arenas[static_cast<int>(buffer.tier)].give(buffer.offset, round_up(buffer.bytes(), unit(id)));
  };
  // For a queue and a tier, an instruction of the queue and the buffers whose last use it was.
  // Their ranges become free at the queue's next last use of a buffer in the tier, or at the end of
  // the segment.
  struct Kept {
    InstrId behind;
    std::vector<BufferId> buffers;
  };
  std::map<std::pair<Queue, Tier>, Kept> kept;
  auto release = [&](Kept& k) {
    for (BufferId id : k.buffers) give(id);
    k.buffers.clear();
  };
  SegmentId segment;
  for (InstrId i : program.instrs.ids()) {
    if (program.instrs[i].segment != segment) {
      segment = program.instrs[i].segment;
      for (auto& [which, k] : kept) release(k);
    }
    for (BufferId id : starts[i]) {
      Buffer& buffer = program.buffers[id];
      int64_t align = unit(id);
      buffer.offset =
          arenas[static_cast<int>(buffer.tier)].take(round_up(buffer.bytes(), align), align);
    }
    const Queue queue = program.instrs[i].queue;
    const bool late = options.late_reuse && (queue == Queue::copy || queue == Queue::host);
    for (BufferId id : ends[i]) {
      if (!late) {
        give(id);
        continue;
      }
      Kept& k = kept[{queue, program.buffers[id].tier}];
      if (k.behind != i) release(k);
      k.behind = i;
      k.buffers.push_back(id);
    }
  }
  for (int t = 0; t < 3; ++t) program.arenas[t].transient = arenas[t].size();
}

int64_t transient_lower_bound(const Program& program, Tier tier) {
  IdVector<BufferId, Lifetime> lives = lifetimes(program);
  IdVector<InstrId, int64_t> change(program.instrs.size() + 1, 0);
  for (BufferId b : program.buffers.ids()) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.residency != Residency::transient || buffer.tier != tier || !lives[b].first.exists())
      continue;
    change[lives[b].first] += buffer.bytes();
    change[lives[b].last + 1] -= buffer.bytes();
  }
  int64_t live = 0, peak = 0;
  for (int64_t c : change) peak = std::max(peak, live += c);
  return peak;
}

IdVector<InstrId, int64_t> live_parameters(const Program& program) {
  IdVector<BufferId, Lifetime> lives = lifetimes(program);
  IdVector<InstrId, int64_t> live(program.instrs.size(), 0);
  for (const Instr& in : program.instrs) {
    if (!in.bucket.exists() || in.def->encodes) continue;
    BufferId b = in.operands.at(1).buffer;
    if (program.buffers[b].residency != Residency::transient) continue;
    for (InstrId i = lives[b].first; i <= lives[b].last; ++i) live[i] += program.buffers[b].numel;
  }
  return live;
}

}  // namespace ds
