#include <cstring>
#include <deque>
#include <map>

#include "core/base/error.h"
#include "core/base/random.h"
#include "exec/executor.h"

namespace ds {
namespace {

// Which buffer last began to use each byte of an arena.
class Owners {
 public:
  void take(int64_t begin, int64_t end, size_t owner) {
    split(begin);
    split(end);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
    pieces_[begin] = {end, owner};
  }
  // Calls fill(begin, end) for the bytes of the range that are still the owner's.
  template <typename F>
  void each(int64_t begin, int64_t end, size_t owner, F&& fill) {
    split(begin);
    split(end);
    for (auto it = pieces_.lower_bound(begin); it != pieces_.end() && it->first < end; ++it) {
      if (it->second.second == owner) fill(it->first, it->second.first);
    }
  }

 private:
  void split(int64_t at) {
    auto it = pieces_.upper_bound(at);
    if (it == pieces_.begin()) return;
    --it;
    if (it->first == at || it->second.first <= at) return;
    auto tail = it->second;
    it->second.first = at;
    pieces_.emplace(at, tail);
  }
  std::map<int64_t, std::pair<int64_t, size_t>> pieces_;  // begin -> (end, owner)
};

class ChaosExecutor final : public Executor {
 public:
  ChaosExecutor(const Program& program, ExecContext context, uint64_t seed)
      : Executor(program, std::move(context)), stream_{seed, 0, static_cast<uint32_t>(program.rank), 0} {}

  void run_to(InstrId end) override {
    if (position_ == 0) start();
    std::deque<size_t> queues[kQueues];
    for (InstrId i = position_; i < end; ++i) {
      queues[static_cast<size_t>(program_.instrs[static_cast<size_t>(i)].queue)].push_back(
          static_cast<size_t>(i));
    }
    for (InstrId left = end - position_; left > 0; --left) {
      int q = pick(queues);
      size_t i = queues[q].front();
      queues[q].pop_front();
      step(i);
    }
    position_ = static_cast<size_t>(end) == program_.instrs.size() ? 0 : end;
  }

 private:
  void start() {
    done_.assign(program_.instrs.size(), 0);
    uses_.assign(program_.buffers.size(), 0);
    for (const Instr& in : program_.instrs) {
      for (const Operand& o : in.operands) ++uses_[static_cast<size_t>(o.buffer)];
    }
    owned_.assign(program_.buffers.size(), 0);
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (!poisonable(b)) continue;
      own(b);
      poison(b);
      owned_[b] = 0;
    }
  }

  bool poisonable(size_t b) const {
    const Buffer& buffer = program_.buffers[b];
    return buffer.residency == Residency::transient && buffer.tier != Tier::nvme && buffer.offset >= 0;
  }

  void own(size_t b) {
    const Buffer& buffer = program_.buffers[b];
    owned_[b] = 1;
    owners_[static_cast<int>(buffer.tier)].take(buffer.offset, buffer.offset + buffer.bytes(), b);
  }

  // Memory that another buffer has begun to use is left alone.
  void poison(size_t b) {
    const Buffer& buffer = program_.buffers[b];
    std::byte* base =
        context_.memory.arena[static_cast<int>(buffer.tier)][static_cast<int>(buffer.residency)];
    owners_[static_cast<int>(buffer.tier)].each(
        buffer.offset, buffer.offset + buffer.bytes(), b, [&](int64_t begin, int64_t end) {
          std::memset(base + begin, 0xFF, static_cast<size_t>(end - begin));
        });
  }

  bool ready(size_t i) const {
    for (InstrId wait : program_.instrs[i].waits) {
      if (!done_[static_cast<size_t>(wait)]) return false;
    }
    return true;
  }

  int pick(const std::deque<size_t>* queues) {
    int choices[kQueues], count = 0;
    for (int q = 0; q < kQueues; ++q) {
      if (!queues[q].empty() && ready(queues[q].front())) choices[count++] = q;
    }
    ensure(count > 0, "no queue of program {} can go on: its waits form a circle", program_.name);
    uint32_t draw = stream_.block(draws_++)[0];
    return choices[draw % static_cast<uint32_t>(count)];
  }

  void step(size_t i) {
    const Instr& in = program_.instrs[i];
    if (context_.before_instr) context_.before_instr(i);
    for (const Operand& o : in.operands) {
      size_t b = static_cast<size_t>(o.buffer);
      if (poisonable(b) && !owned_[b]) own(b);
    }
    try {
      if (in.queue == Queue::read || in.queue == Queue::write) {
        IoLane* lane = in.queue == Queue::read ? context_.read_lane : context_.write_lane;
        lane->wait(lane->submit(io_request(launches_[i])));
      } else {
        perform(i);
      }
    } catch (const std::exception& error) {
      fail(i, error);
    }
    done_[i] = 1;
    for (const Operand& o : in.operands) {
      size_t b = static_cast<size_t>(o.buffer);
      if (--uses_[b] == 0 && poisonable(b)) poison(b);
    }
  }

  RandomStream stream_;
  uint64_t draws_ = 0;
  std::vector<char> done_;
  Owners owners_[2];  // transient arenas of device and host
  std::vector<char> owned_;
  std::vector<int32_t> uses_;  // per buffer: operands still to come
};

}  // namespace

std::unique_ptr<Executor> make_chaos_executor(const Program& program, ExecContext context, uint64_t seed) {
  return std::make_unique<ChaosExecutor>(program, std::move(context), seed);
}

}  // namespace ds
