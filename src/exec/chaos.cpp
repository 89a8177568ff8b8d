// Problem. A program is correct if every order that its waits allow gives the same results. But a
// real device runs only a few of these orders, and memory that is read too early or too late often
// has the right bytes by chance.
//
// Algorithm. Each turn picks a queue whose next instruction may start. The order of preference is
// random and changes from time to time, so that one queue is preferred for a while. Transient
// memory is filled with 0xFF, which is NaN in every floating-point type, before the run and after
// the last use of each buffer, unless another buffer has begun to use the bytes (Owners). A missing
// wait then changes the result. Every instruction is completed on the calling thread before the
// next pick, so the seed and the rank determine a run.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/ids.h"
#include "core/base/random.h"
#include "core/base/tier.h"
#include "core/device/host_device.h"
#include "core/program/instruction.h"
#include "core/program/program.h"
#include "exec/executor.h"
#include "io/async_file.h"

namespace ds {
namespace {

// For each byte of an arena, the buffer that was the last to begin using it.
class Owners {
 public:
  void take(int64_t begin, int64_t end, BufferId owner) {
    split(begin);
    split(end);
    pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
    pieces_[begin] = {end, owner};
  }
  // Calls fill(begin, end) for each piece of the range whose owner is still `owner`.
  template <typename F>
  void each(int64_t begin, int64_t end, BufferId owner, F&& fill) {
    split(begin);
    split(end);
    for (auto it = pieces_.lower_bound(begin); it != pieces_.end() && it->first < end; ++it) {
      if (it->second.second == owner) fill(it->first, it->second.first);
    }
  }

 private:
  // Splits the piece that contains `at`, so that a piece begins there.
  void split(int64_t at) {
    auto it = pieces_.upper_bound(at);
    if (it == pieces_.begin()) return;
    --it;
    if (it->first == at || it->second.first <= at) return;
    auto tail = it->second;
    it->second.first = at;
    pieces_.emplace(at, tail);
  }
  // The end and the owner of each piece, by its begin.
  std::map<int64_t, std::pair<int64_t, BufferId>> pieces_;
};

class ChaosExecutor final : public Executor {
 public:
  ChaosExecutor(const Program& program, ExecContext context, uint64_t seed)
      : Executor(program, std::move(context)),
        stream_{seed, 0, static_cast<uint32_t>(program.rank), 0} {}

  ~ChaosExecutor() override { leave_tail(); }

  // Picks a queue and completes its next instruction on the calling thread, as long as any queue
  // has work before `end`. Saves at the end of a program may be left for the next run, as an
  // asynchronous lane would leave them.
  void run_to(Position end) override {
    take_tail();
    send_scalars();
    if (position_ == Position() && program_.before(position_, end)) start();
    Queues queues;
    for (Position at = position_; program_.before(at, end); at = program_.next(at))
      queues[program_.instrs[at.instr].queue].push_back(at);
    bool ends = end == program_.end();
    while (left(queues, ends)) {
      size_t q = pick(queues);
      if (q == kTail) {
        settle_one();
        continue;
      }
      std::deque<Position>& queue = queues[static_cast<Queue>(q)];
      Position at = queue.front();
      queue.pop_front();
      step(at);
    }
    tail_.insert(tail_.end(), queues[Queue::write].begin(), queues[Queue::write].end());
    if (!context_.tail) settle();
    position_ = ends ? Position() : end;
    fetch_scalars();
  }

  void settle() override {
    while (!tail_.empty()) settle_one();
  }

  void abandon() override {
    settle();
    position_ = {};
  }

 private:
  using Queues = PerQueue<std::deque<Position>>;
  static constexpr size_t kWrite = static_cast<size_t>(Queue::write);
  // The index that pick() uses for the saves that the previous run has left.
  static constexpr size_t kTail = kQueues;

  // Returns whether this call of run_to() has more to do. `ends` says whether it ends the program;
  // then saves may be left for the next run.
  bool left(const Queues& queues, bool ends) const {
    for (size_t q = 0; q < kQueues; ++q) {
      if (!queues[q].empty() && !(ends && q == kWrite)) return true;
    }
    return false;
  }

  // Carries out the first of the saves that were left.
  void settle_one() {
    Position at = tail_.front();
    tail_.pop_front();
    if (program_.takes_part(at)) transfer(at);
  }

  // Begins a run: poisons all transient memory except the buffers that saves of the previous run
  // still read.
  void start() {
    carried_.assign(program_.buffers.size(), 0);
    for (Position at : tail_) {
      for (const Operand& o : program_.instrs[at.instr].operands) carried_[o.buffer] = 1;
    }
    done_.assign(program_.instrs.size(), 0);
    count_uses();
    owned_.assign(program_.buffers.size(), 0);
    for (BufferId b : program_.buffers.ids()) {
      if (poisonable(b) && !carried_[b]) own(b);
    }
    for (BufferId b : program_.buffers.ids()) {
      if (carried_[b] && poisonable(b)) own(b);
    }
    for (BufferId b : program_.buffers.ids()) {
      if (poisonable(b) && !carried_[b]) poison(b);
    }
    owned_.assign(program_.buffers.size(), 0);
  }

  // Counts the uses of each buffer, so that the last use is known. A buffer that is used only in
  // the repeated stretch has a last use in each round, so only the uses of one round are counted.
  void count_uses() {
    uses_.assign(program_.buffers.size(), 0);
    in_round_.assign(program_.buffers.size(), 0);
    IdVector<BufferId, int32_t> outside(program_.buffers.size(), 0);
    for (InstrId i : program_.instrs.ids()) {
      for (const Operand& o : program_.instrs[i].operands)
        ++(program_.repeat.has(i) ? in_round_ : outside)[o.buffer];
    }
    for (BufferId b : uses_.ids()) {
      if (outside[b] > 0)
        uses_[b] = outside[b] + program_.repeat.rounds * std::exchange(in_round_[b], 0);
      else
        uses_[b] = in_round_[b];
    }
  }

  // Returns whether the buffer's memory is free after the last use, so that it may be poisoned.
  bool poisonable(BufferId b) const {
    const Buffer& buffer = program_.buffers[b];
    bool ends = buffer.residency == Residency::transient && !buffer.kept();
    return ends && buffer.tier != Tier::nvme && buffer.offset >= 0;
  }

  // Records that the buffer begins to use its memory.
  void own(BufferId b) {
    const Buffer& buffer = program_.buffers[b];
    owned_[b] = 1;
    owners_[static_cast<int>(buffer.tier)].take(buffer.offset, buffer.offset + buffer.bytes(), b);
  }

  // Poisons the buffer's memory, except bytes that another buffer has begun to use.
  void poison(BufferId b) {
    const Buffer& buffer = program_.buffers[b];
    std::byte* base =
        context_.memory.arena[static_cast<int>(buffer.tier)][static_cast<int>(buffer.residency)];
    owners_[static_cast<int>(buffer.tier)].each(
        buffer.offset, buffer.offset + buffer.bytes(), b, [&](int64_t begin, int64_t end) {
          context_.queues->device().fill(base + begin, 0xFF, end - begin);
        });
  }

  // Returns whether all instructions that the instruction waits for are done.
  bool ready(Position at) const {
    for (const Wait& wait : program_.instrs[at.instr].waits) {
      bool both = program_.repeat.has(at.instr) && program_.repeat.has(wait.instr);
      int32_t rounds = both ? at.round + (wait.round_before ? 0 : 1) : program_.rounds(wait.instr);
      if (wait.run_before ? in_tail(wait.instr) : done_[wait.instr] < rounds) return false;
    }
    return true;
  }
  bool in_tail(InstrId i) const {
    return std::ranges::any_of(tail_, [&](Position at) { return at.instr == i; });
  }

  // Returns the queue, or kTail, that the current order prefers among those whose next instruction
  // may start. The order changes every 1 to 512 picks, depending on the seed, so that one queue
  // sometimes runs far ahead of the others.
  size_t pick(const Queues& queues) {
    std::array<uint32_t, 4> order = stream_.block(draws_++ >> (3 * stream_.seed % 10));
    auto rank = [&](size_t q) { return order[q % 4] >> (q / 4 * 16) & 0xFFFF; };
    constexpr size_t kNone = kTail + 1;
    size_t best = tail_.empty() ? kNone : kTail;
    for (size_t q = 0; q < kQueues; ++q) {
      bool behind = q == kWrite && !tail_.empty();
      if (queues[q].empty() || behind || !ready(queues[q].front())) continue;
      if (best == kNone || rank(q) > rank(best)) best = q;
    }
    ensure(best != kNone, "no queue of program {} can continue, because its waits form a circle",
           program_.name);
    return best;
  }

  void step(Position at) {
    const Instr& in = program_.instrs[at.instr];
    if (program_.takes_part(at)) issue(at);
    ++done_[at.instr];
    for (const Operand& o : in.operands) {
      if (--uses_[o.buffer] > 0 || !poisonable(o.buffer)) continue;
      poison(o.buffer);
      owned_[o.buffer] = 0;
      uses_[o.buffer] = in_round_[o.buffer];
    }
  }

  void issue(Position at) {
    InstrId i = at.instr;
    const Instr& in = program_.instrs[i];
    if (context_.before_instr) context_.before_instr(i.index());
    for (const Operand& o : in.operands) {
      if (poisonable(o.buffer) && !owned_[o.buffer]) own(o.buffer);
    }
    try {
      if (in.queue == Queue::read || in.queue == Queue::write) {
        transfer(at);
      } else {
        give(at, now_);
      }
    } catch (const std::exception& error) {
      fail(i, error);
    }
  }

  // Carries out a transfer and waits for its end.
  void transfer(Position at) {
    IoLane* lane =
        program_.instrs[at.instr].queue == Queue::read ? context_.read_lane : context_.write_lane;
    lane->wait(lane->submit(io_request(at)));
  }

  // The queue that carries out every instruction at once. pick() determines the order.
  InlineQueue now_;
  RandomStream stream_;
  // The number of picks so far.
  uint64_t draws_ = 0;
  // For each instruction, the number of rounds of this run that are done.
  IdVector<InstrId, int32_t> done_;
  // The owners of the bytes of the transient arenas of device and host.
  Owners owners_[2];
  // For each buffer, whether it has begun to use its memory and its last use is still to come.
  IdVector<BufferId, char> owned_;
  // The saves that a run has left, in order.
  std::deque<Position> tail_;
  // For each buffer, whether a save that the previous run has left uses it.
  IdVector<BufferId, char> carried_;
  // For each buffer, the number of uses still to come.
  IdVector<BufferId, int32_t> uses_;
  // For each buffer that is used only in the repeated stretch, the number of uses in a round; 0 for
  // other buffers.
  IdVector<BufferId, int32_t> in_round_;
};

}  // namespace

std::unique_ptr<Executor> make_chaos_executor(const Program& program, ExecContext context,
                                              uint64_t seed) {
  return std::make_unique<ChaosExecutor>(program, std::move(context), seed);
}

}  // namespace ds
