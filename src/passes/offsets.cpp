#include <algorithm>
#include <iterator>
#include <map>

#include "core/base/error.h"
#include "passes/schedule.h"

namespace ds {
namespace {

int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

// Free memory of one arena, by offset. Best fit; grows at the end.
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
    if (!free_.empty() && std::prev(free_.end())->second == size_) {  // extend the free tail
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

struct Lifetime {
  int64_t first = -1, last = -1;
};

std::vector<Lifetime> lifetimes(const Program& program) {
  std::vector<Lifetime> out(program.buffers.size());
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    for (const Operand& o : program.instrs[i].operands) {
      Lifetime& life = out[static_cast<size_t>(o.buffer)];
      if (life.first < 0) life.first = static_cast<int64_t>(i);
      life.last = static_cast<int64_t>(i);
    }
  }
  return out;
}

std::vector<char> touched_by_files(const Program& program) {
  std::vector<char> out(program.buffers.size(), 0);
  for (const Instr& in : program.instrs) {
    if (in.queue != Queue::read && in.queue != Queue::write) continue;
    for (const Operand& o : in.operands) out[static_cast<size_t>(o.buffer)] = 1;
  }
  return out;
}

}  // namespace

void assign_offsets(Program& program, const OffsetOptions& options) {
  std::vector<char> files = touched_by_files(program);
  auto unit = [&](size_t b) {
    bool file = files[b] || program.buffers[b].tier == Tier::nvme;
    return file ? options.file_alignment : options.alignment;
  };
  for (ArenaSizes& a : program.arenas) a = {};
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    Buffer& buffer = program.buffers[b];
    if (buffer.residency != Residency::persistent) continue;
    int64_t& size = program.arenas[static_cast<int>(buffer.tier)].persistent;
    // Persistent places are the same in every program, so they do not depend on which files this one touches.
    int64_t align = buffer.tier == Tier::nvme ? options.file_alignment : options.alignment;
    buffer.offset = round_up(size, align);
    size = buffer.offset + round_up(buffer.bytes(), align);
  }
  std::vector<Lifetime> lives = lifetimes(program);
  std::vector<std::vector<BufferId>> starts(program.instrs.size()), ends(program.instrs.size());
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    if (program.buffers[b].residency != Residency::transient || lives[b].first < 0) continue;
    starts[static_cast<size_t>(lives[b].first)].push_back(static_cast<BufferId>(b));
    ends[static_cast<size_t>(lives[b].last)].push_back(static_cast<BufferId>(b));
  }
  FreeList arenas[3];
  for (size_t i = 0; i < program.instrs.size(); ++i) {
    for (BufferId id : starts[i]) {
      Buffer& buffer = program.buffers[static_cast<size_t>(id)];
      int64_t align = unit(static_cast<size_t>(id));
      buffer.offset = arenas[static_cast<int>(buffer.tier)].take(round_up(buffer.bytes(), align), align);
    }
    for (BufferId id : ends[i]) {
      Buffer& buffer = program.buffers[static_cast<size_t>(id)];
      int64_t align = unit(static_cast<size_t>(id));
      arenas[static_cast<int>(buffer.tier)].give(buffer.offset, round_up(buffer.bytes(), align));
    }
  }
  for (int t = 0; t < 3; ++t) program.arenas[t].transient = arenas[t].size();
}

int64_t transient_lower_bound(const Program& program, Tier tier) {
  std::vector<Lifetime> lives = lifetimes(program);
  std::vector<int64_t> change(program.instrs.size() + 1, 0);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (buffer.residency != Residency::transient || buffer.tier != tier || lives[b].first < 0) continue;
    change[static_cast<size_t>(lives[b].first)] += buffer.bytes();
    change[static_cast<size_t>(lives[b].last) + 1] -= buffer.bytes();
  }
  int64_t live = 0, peak = 0;
  for (int64_t c : change) peak = std::max(peak, live += c);
  return peak;
}

std::vector<int64_t> live_parameters(const Program& program) {
  std::vector<Lifetime> lives = lifetimes(program);
  std::vector<int64_t> live(program.instrs.size(), 0);
  for (const Instr& in : program.instrs) {
    if (in.bucket < 0 || in.def->encodes) continue;
    size_t b = static_cast<size_t>(in.operands.at(1).buffer);
    if (program.buffers[b].residency != Residency::transient) continue;
    for (int64_t i = lives[b].first; i <= lives[b].last; ++i)
      live[static_cast<size_t>(i)] += program.buffers[b].numel;
  }
  return live;
}

}  // namespace ds
