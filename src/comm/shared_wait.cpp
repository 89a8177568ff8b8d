#include <fmt/core.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>

#include "comm/blame.h"
#include "comm/intent.h"
#include "comm/patience.h"
#include "comm/shared_exchange.h"
#include "comm/transport/transport.h"
#include "core/base/error.h"
#include "core/base/process_mark.h"
#include "core/base/relax.h"
#include "core/base/trace.h"

// This file implements how the ranks of a segment wait for each other, and how a group ends.
namespace ds {
namespace {

// Time between two checks on a peer that is waited for.
constexpr int64_t kSleepNs = 20'000'000;
// The longest time between the claim that a group has ended and its reason.
constexpr int64_t kReasonNs = 1'000'000'000;

void futex_wait(const std::atomic<uint32_t>& word, uint32_t value) {
  timespec limit{0, kSleepNs};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// set() publishes a word and sleep_on() waits for it to change. Each function writes one word and
// then reads the word that the other function writes, sequentially consistent. So at least one of
// them sees the other's write, and no wake-up is lost.
void set(RankBlock& block, std::atomic<uint32_t>& word, uint32_t value) {
  word.store(value);
  if (block.sleepers.load() != 0) futex_wake(word);
}

void sleep_on(RankBlock& block, const std::atomic<uint32_t>& word, uint32_t seen) {
  block.sleepers.fetch_add(1);
  if (word.load() == seen) futex_wait(word, seen);
  block.sleepers.fetch_sub(1);
}

// Returns whether a counter has reached `count`. The difference is signed, because counters wrap
// around.
bool is_at(uint32_t value, uint32_t count) { return static_cast<int32_t>(value - count) >= 0; }

// The heartbeats that ranks show in the world's segment.
class SegmentWorld final : public World {
 public:
  explicit SegmentWorld(const SharedSegment& segment) : segment_(segment) {}
  Sign sign(int rank) const override {
    const RankBlock& block = segment_.ranks[rank];
    return {block.work.load(), block.pulse.load(), static_cast<int>(block.waits_for.load()) - 1};
  }
  std::string doing(int rank) const override {
    const auto& words = segment_.ranks[rank].doing;
    char text[sizeof words + 1] = {};
    for (size_t i = 0; i < std::size(words); ++i) {
      uint64_t word = words[i].load(std::memory_order_relaxed);
      std::memcpy(text + i * sizeof word, &word, sizeof word);
    }
    return text;
  }

 private:
  const SharedSegment& segment_;
};

// A wait that other ranks can see: while the object exists, this rank shows in which collective it
// waits and for which rank. The destructor shows that the wait has ended and marks progress.
class ShownWait {
 public:
  ShownWait(RankBlock& shown, int peer, const Intent& intent) : shown_(shown) {
    char text[sizeof shown.doing] = {};
    size_t at = put_text(text, sizeof text, intent.operation);
    at = put_text(text, sizeof text, " '", at);
    at = put_text(text, sizeof text - 1, intent.label, at);
    put_text(text, sizeof text, "'", at);
    for (size_t i = 0; i < std::size(shown.doing); ++i) {
      uint64_t word;
      std::memcpy(&word, text + i * sizeof word, sizeof word);
      shown.doing[i].store(word, std::memory_order_relaxed);
    }
    shown_.waits_for.store(static_cast<uint32_t>(peer) + 1);
  }
  ~ShownWait() {
    shown_.waits_for.store(0);
    shown_.work.fetch_add(1);
  }
  ShownWait(const ShownWait&) = delete;
  ShownWait& operator=(const ShownWait&) = delete;

 private:
  RankBlock& shown_;
};

}  // namespace

void SharedExchange::tick() { shown_.work.fetch_add(1, std::memory_order_relaxed); }

void SharedExchange::leave() {
  own_.left.store(1);
  futex_wake(own_.phase);
}

// The intent is written before the phase, whose store publishes it.
void SharedExchange::publish() {
  ++phase_;
  own_.intents[phase_ & 1] = intent_;
  tick();
  set(own_, own_.phase, phase_);
}

void SharedExchange::step_with(int peer) {
  uint32_t step = ++steps_[static_cast<size_t>(peer)];
  tick();
  set(own_, segment_.table(size(), rank())[peer].meeting, step);
  wait_for(peer, segment_.table(size(), peer)[rank()].meeting, step, true);
}

// A rank first spins, then yields if ranks outnumber the cores, then sleeps on the word, 20 ms at a
// time. Between sleeps it checks whether the peer has left, has died or makes no progress, and
// whether the group has ended.
void SharedExchange::wait_for(int peer, const std::atomic<uint32_t>& word, uint32_t count,
                              bool meeting) {
  auto reached = [&] { return is_at(word.load(std::memory_order_acquire), count); };
  for (int i = 0; i < spins_; ++i) {
    if (reached()) return;
    cpu_relax();
  }
  // A yield may last as long as a time slice of every other busy thread of the machine, so the
  // total time is bounded. While it yields, this rank does not show that it waits; after a longer
  // time, the others would believe that it makes no progress.
  const int64_t yield_until = now_ns() + kSleepNs;
  for (int i = 0; i < yields_ && now_ns() < yield_until; ++i) {
    if (reached()) return;
    std::this_thread::yield();
  }
  RankBlock& block = segment_.ranks[peer];
  ShownWait shown(shown_, world(peer), intent_);
  Patience patience;
  while (!reached()) {
    bool over = ended() != nullptr;
    bool differs = false;
    std::string reason = missing(peer, meeting, patience, differs);
    // Between the two reads of the word, the peer may have come, finished and left, or ended the
    // group for a later error.
    if (reached()) return;
    if (over) check_abort();
    if (!reason.empty() && !differs) lose(peer, reason);
    if (!reason.empty()) fail(reason);
    uint32_t seen = word.load(std::memory_order_acquire);
    if (is_at(seen, count)) return;
    sleep_on(block, word, seen);
    shown_.pulse.fetch_add(1, std::memory_order_relaxed);
  }
}

// A rank that has left may already have done its part of the work that is waited for, so leaving is
// not an error here. Dying and making no progress are errors.
void SharedExchange::watch(const Intent& intent) {
  intent_ = intent;
  check_abort();
  const int64_t now = now_ns();
  watched_.resize(static_cast<size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (segment_.ranks[r].left.load() == 0 && !sharing_->alive(r))
      lose(r, fmt::format("rank {} is dead", world(r)));
    std::string reason =
        watched_[static_cast<size_t>(r)].look(SegmentWorld(world_), world(r), now, timeout_ms_);
    if (!reason.empty()) lose(r, reason);
  }
  shown_.pulse.fetch_add(1, std::memory_order_relaxed);
}

void SharedExchange::lose(int peer, const std::string& reason) {
  blame_rank(world(peer), world_size());
  fail(reason, world(peer));
}

std::string SharedExchange::missing(int peer, bool meeting, Patience& patience, bool& differs) {
  RankBlock& block = segment_.ranks[peer];
  bool started = joined_ || block.phase.load() > 0;
  if (started && block.left.load() != 0)
    return fmt::format("rank {} has left the group", world(peer));
  if (started && !sharing_->alive(peer)) return fmt::format("rank {} is dead", world(peer));
  uint32_t phase = block.phase.load();
  // The peer waits in a later round of collectives, so the two ranks call different operations.
  if (meeting && !is_at(phase_, phase)) {
    differs = true;
    return intents_differ(world(rank()), intent_, world(peer), block.intents[phase & 1]);
  }
  std::string reason = patience.look(SegmentWorld(world_), world(peer), now_ns(), timeout_ms_);
  if (reason.empty() || joined_) return reason;
  return fmt::format("rank {} has not joined within {} ms", world(peer), timeout_ms_);
}

void SharedExchange::compare(int peer, const Intent& theirs) {
  std::string reason = intents_differ(world(rank()), intent_, world(peer), theirs);
  if (!reason.empty()) fail(reason);
}

// If several ranks fail, the first to claim `aborted` is the cause, and the others report that
// rank's reason.
void SharedExchange::fail(const std::string& reason, int about) {
  std::string message = fmt::format("{}: {}", here(intent_), reason);
  abort(message);
  if (segment_.aborted.load() != static_cast<uint32_t>(world(rank())) + 1) check_abort();
  throw Error(DS_ERROR_COMM, message, {.rank = about});
}

void SharedExchange::abort(std::string_view reason) {
  // A forked child has no part in the group.
  if (this_process().number != process_) return;
  uint32_t none = 0;
  if (segment_.aborted.compare_exchange_strong(none, static_cast<uint32_t>(world(rank())) + 1)) {
    put_text(segment_.reason, sizeof segment_.reason, reason);
    segment_.reason_ready.store(1, std::memory_order_release);
  }
  for (int r = 0; r < size(); ++r) futex_wake(segment_.ranks[r].phase);
}

SharedSegment* SharedExchange::ended() const {
  if (segment_.aborted.load() != 0) return &segment_;
  for (const auto& sharing : around_) {
    if (sharing->segment().aborted.load() != 0) return &sharing->segment();
  }
  return nullptr;
}

// A rank claims `aborted` before it writes the reason, so this waits for the reason. On a busy
// machine, the system may stop that rank in between for as long as several time slices.
void SharedExchange::check_abort() {
  SharedSegment* over = ended();
  if (!over) return;
  SharedSegment& segment = *over;
  uint32_t by = segment.aborted.load();
  const int64_t until = now_ns() + kReasonNs;
  while (segment.reason_ready.load(std::memory_order_acquire) == 0 && now_ns() < until)
    std::this_thread::yield();
  if (&segment == &segment_ && by == static_cast<uint32_t>(world(rank())) + 1) {
    throw Error(DS_ERROR_COMM, segment.reason);
  }
  blame_rank(static_cast<int>(by) - 1, world_size());
  bool ready = segment.reason_ready.load(std::memory_order_acquire) != 0;
  raise(DS_ERROR_COMM, "{}: the group {}was ended by rank {}: {}", here(intent_),
        &segment == &segment_ ? "" : "around it ", RankNumber(by - 1),
        ready ? segment.reason : "(it died before it said why)");
}

}  // namespace ds
