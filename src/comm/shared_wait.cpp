#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <thread>

#include "comm/shared_exchange.h"
#include "core/base/error.h"
#include "core/base/trace.h"

// How ranks of a segment wait for each other, and how they end.
namespace ds {
namespace {

constexpr int64_t kSleepNs = 20'000'000;         // between looks at a peer that does not come
constexpr int64_t kLongestStepNs = 200'000'000;  // of one look; more is this rank's own standstill

void futex_wait(const std::atomic<uint32_t>& word, uint32_t value) {
  timespec limit{0, kSleepNs};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Publishing rank and sleeper each write one word and then read the other's (both seq_cst): one of them sees.
void set(RankBlock& block, std::atomic<uint32_t>& word, uint32_t value) {
  word.store(value);
  if (block.sleepers.load() != 0) futex_wake(word);
}

void sleep_on(RankBlock& block, const std::atomic<uint32_t>& word, uint32_t seen) {
  block.sleepers.fetch_add(1);
  if (word.load() == seen) futex_wait(word, seen);
  block.sleepers.fetch_sub(1);
}

bool is_at(uint32_t value, uint32_t count) { return static_cast<int32_t>(value - count) >= 0; }

}  // namespace

void SharedExchange::tick() { own_.progress.fetch_add(1, std::memory_order_relaxed); }

void SharedExchange::leave() {
  own_.left.store(1);
  futex_wake(own_.phase);
}

void SharedExchange::publish() {
  ++phase_;
  own_.intents[phase_ & 1] = intent_;
  tick();
  set(own_, own_.phase, phase_);
}

void SharedExchange::step_with(int peer) {
  uint32_t step = ++steps_[static_cast<size_t>(peer)];
  tick();
  set(own_, own_.meetings[peer], step);
  wait_for(peer, segment_.ranks[peer].meetings[rank()], step, true);
}

void SharedExchange::wait_for(int peer, const std::atomic<uint32_t>& word, uint32_t count, bool meeting) {
  auto reached = [&] { return is_at(word.load(std::memory_order_acquire), count); };
  for (int i = 0; i < spins_; ++i) {
    if (reached()) return;
    __builtin_ia32_pause();
  }
  for (int i = 0; i < yields_; ++i) {
    if (reached()) return;
    std::this_thread::yield();
  }
  RankBlock& block = segment_.ranks[peer];
  Patience patience{block.progress.load(), now_ns(), 0};
  while (!reached()) {
    bool over = ended() != nullptr;
    std::string reason = missing(peer, meeting, patience);
    if (reached()) return;  // it came, finished and left (or ended the group later on) between the looks
    if (over) check_abort();
    if (!reason.empty()) fail(reason);
    uint32_t seen = word.load(std::memory_order_acquire);
    if (is_at(seen, count)) return;
    sleep_on(block, word, seen);
    tick();  // waiting for a slow peer is no standstill of this rank
  }
}

std::string SharedExchange::missing(int peer, bool meeting, Patience& patience) {
  RankBlock& block = segment_.ranks[peer];
  bool started = joined_ || block.phase.load() > 0;
  if (started && block.left.load() != 0) return fmt::format("rank {} has left the group", peer);
  if (started && !sharing_->alive(peer)) return fmt::format("rank {} is dead", peer);
  uint32_t phase = block.phase.load();
  if (meeting && !is_at(phase_, phase)) {  // it waits in a collective that this rank has not begun
    return intents_differ(rank(), intent_, peer, block.intents[phase & 1]);
  }
  int64_t now = now_ns();
  patience.waited_ns += std::min(now - patience.looked_ns, kLongestStepNs);
  patience.looked_ns = now;
  uint32_t progress = block.progress.load();
  if (progress != patience.progress) patience = {progress, now, 0};
  if (patience.waited_ns / 1'000'000 <= timeout_ms_) return "";
  return joined_ ? fmt::format("rank {} has made no progress for {} ms", peer, timeout_ms_)
                 : fmt::format("rank {} has not joined within {} ms", peer, timeout_ms_);
}

void SharedExchange::compare(int peer, const Intent& theirs) {
  std::string why = intents_differ(rank(), intent_, peer, theirs);
  if (!why.empty()) fail(why);
}

void SharedExchange::fail(const std::string& reason) {
  std::string message =
      fmt::format("rank {} in {} '{}': {}", rank(), intent_.operation, intent_.label, reason);
  abort(message);
  if (segment_.aborted.load() != static_cast<uint32_t>(rank()) + 1) check_abort();
  throw Error(DS_ERROR_COMM, message);
}

void SharedExchange::abort(std::string_view reason) {
  if (getpid() != process_) return;  // a forked child has no part in the group
  uint32_t none = 0;
  if (segment_.aborted.compare_exchange_strong(none, static_cast<uint32_t>(rank()) + 1)) {
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

void SharedExchange::check_abort() {
  SharedSegment* over = ended();
  if (!over) return;
  SharedSegment& segment = *over;
  uint32_t by = segment.aborted.load();
  for (int i = 0; i < 1000 && segment.reason_ready.load(std::memory_order_acquire) == 0; ++i)
    std::this_thread::yield();
  if (&segment == &segment_ && by == static_cast<uint32_t>(rank()) + 1) {
    throw Error(DS_ERROR_COMM, segment.reason);
  }
  bool ready = segment.reason_ready.load(std::memory_order_acquire) != 0;
  raise(DS_ERROR_COMM, "rank {} in {} '{}': the group {}was ended by rank {}: {}", rank(), intent_.operation,
        intent_.label, &segment == &segment_ ? "" : "around it ", by - 1,
        ready ? segment.reason : "(it died before it said why)");
}

}  // namespace ds
