// Problem: a step has thousands of transient buffers, together far larger than the memory. Each
// lives only from its first access to its last, in the order in which instructions are issued. Each
// needs an offset in the arena of its tier, and the arenas should be small.
//
// Invariant: if one of two buffers is accessed between the first and the last access of the other,
// they have no byte in common. That says nothing about queues that run ahead of each other: a
// buffer may get memory that an instruction on another queue still uses. The pass sync.cpp comes
// later and turns such conflicts into waits. Offsets of persistent buffers depend on the list of
// persistent buffers alone, so all programs of an engine agree on them.
//
// Algorithm: persistent buffers lie one after another. Then comes one walk over the instructions. A
// buffer that is accessed for the first time gets the smallest free range that holds it, or extends
// the arena (FreeList::take). After its last access its range becomes free and joins its free
// neighbours (FreeList::give). With late_reuse, a range last used by a copy or by an instruction of
// the host stays in use until that queue has finished its next instruction in the same memory. A
// buffer that is kept lives from the first instruction to the last. Without late_reuse, best fit
// would give the range to the very next buffer of that kind, and gradients that are stored, added
// up, updated and fetched would go through one place, one at a time.
//
// Cost: one pass over all free ranges for each buffer. The arena is at least the largest sum of
// live bytes (transient_lower_bound); the tests allow 1.3 times that. docs/adr/0005 says why this
// was preferred to placing all buffers by size, the largest first.
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

// The free memory of one arena, by offset. Takes the best fit; grows at the end.
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
    // Extends the free range at the end, if there is one, instead of leaving it unused.
    if (!free_.empty() && std::prev(free_.end())->second == size_) {
      begin = std::prev(free_.end())->first;
      free_.erase(std::prev(free_.end()));
    }
    int64_t aligned = round_up(begin, alignment);
    if (begin < aligned) free_[begin] = aligned;
    size_ = aligned + bytes;
    return aligned;
  }

  std::map<int64_t, int64_t> free_;  // begin -> end
  int64_t size_ = 0;
};

// The first and the last instruction that access a buffer. They do not exist if no instruction
// does.
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

// Marks the buffers that instructions of the read or write queue access: files need block
// alignment.
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
    // Persistent offsets are the same in every program, so they must not depend on which files this
    // one touches.
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
  // For a queue and tier: the buffers that the queue's last instruction used last. Their ranges
  // become free when the next such instruction has passed.
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
