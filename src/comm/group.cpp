#include "comm/group.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <ctime>
#include <thread>

#include "core/base/error.h"
#include "core/base/trace.h"

namespace ds {
namespace {

constexpr int64_t kSleepNs = 20'000'000;         // between looks at a peer that does not come
constexpr int64_t kLongestStepNs = 200'000'000;  // of one look; more is this rank's own standstill

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  timespec limit{0, kSleepNs};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Publishing rank and sleeper each write one word and then read the other's (both seq_cst): one of them sees.
void wake(RankBlock& block) {
  if (block.sleepers.load() != 0) futex_wake(block.phase);
}

void sleep_on(RankBlock& block, uint32_t seen) {
  block.sleepers.fetch_add(1);
  if (block.phase.load() == seen) futex_wait(block.phase, seen);
  block.sleepers.fetch_sub(1);
}

}  // namespace

Group::Group(std::unique_ptr<Sharing> sharing, const CommOptions& options)
    : sharing_(std::move(sharing)),
      segment_(sharing_->segment()),
      rank_(options.rank),
      size_(options.size),
      process_(getpid()),
      timeout_ms_(options.join_ms) {
  // About as long as a sleep and a wake cost; with more ranks than cores, spinning keeps the others from
  // running.
  spins_ = static_cast<unsigned>(size_) > std::thread::hardware_concurrency() ? 50 : 300;
  begin("join", "", 0, "");
  exchange();
  joined_ = true;
  timeout_ms_ = options.timeout_ms;
}

Group::~Group() {
  if (getpid() != process_) {  // a forked child has no part in the group
    (void)sharing_.release();
    return;
  }
  segment_.ranks[rank_].left.store(1);
  futex_wake(segment_.ranks[rank_].phase);
}

int64_t Group::overhead_bytes() const { return static_cast<int64_t>(SharedSegment::bytes(size_)) / size_; }

void Group::tick() { segment_.ranks[rank_].progress.fetch_add(1, std::memory_order_relaxed); }

void Group::begin(std::string_view operation, std::string_view detail, uint64_t bytes,
                  std::string_view label) {
  if (getpid() != process_) {
    raise(DS_ERROR_STATE, "{} '{}': the communicator was made by process {}, not by its child {}", operation,
          label, process_, getpid());
  }
  first_ = true;
  intent_.set(sequence_++, operation, detail, bytes, label);
  check_abort();  // last: the message names this collective
}

std::byte* Group::mine() { return segment_.slot(size_, rank_) + ((phase_ + 1) & 1) * kHalf; }

const std::byte* Group::theirs(int rank) const { return segment_.slot(size_, rank) + (phase_ & 1) * kHalf; }

void Group::exchange() {
  RankBlock& own = segment_.ranks[rank_];
  ++phase_;
  own.intents[phase_ & 1] = intent_;
  own.progress.fetch_add(1, std::memory_order_relaxed);
  own.phase.store(phase_);
  wake(own);
  for (int step = 1; step < size_; ++step) wait_for((rank_ + step) % size_, phase_);
  if (first_) compare_intents();
  first_ = false;
}

void Group::wait_for(int peer, uint32_t phase) {
  const std::atomic<uint32_t>& word = segment_.ranks[peer].phase;
  auto reached = [&] { return static_cast<int32_t>(word.load(std::memory_order_acquire) - phase) >= 0; };
  for (int i = 0; i < spins_; ++i) {
    if (reached()) return;
    __builtin_ia32_pause();
  }
  Patience patience{segment_.ranks[peer].progress.load(), now_ns(), 0};
  while (!reached()) {
    bool ended = segment_.aborted.load() != 0;
    std::string reason = missing(peer, patience);
    if (reached()) return;  // it came, finished and left (or ended the group later on) between the looks
    if (ended) check_abort();
    if (!reason.empty()) fail(reason);
    uint32_t seen = word.load(std::memory_order_acquire);
    if (static_cast<int32_t>(seen - phase) >= 0) return;
    sleep_on(segment_.ranks[peer], seen);
    tick();  // waiting for a slow peer is no standstill of this rank
  }
}

std::string Group::missing(int peer, Patience& patience) {
  RankBlock& block = segment_.ranks[peer];
  bool started = joined_ || block.phase.load() > 0;
  if (started && block.left.load() != 0) return fmt::format("rank {} has left the group", peer);
  if (started && !sharing_->alive(peer)) return fmt::format("rank {} is dead", peer);
  int64_t now = now_ns();
  patience.waited_ns += std::min(now - patience.looked_ns, kLongestStepNs);
  patience.looked_ns = now;
  uint32_t progress = block.progress.load();
  if (progress != patience.progress) patience = {progress, now, 0};
  if (patience.waited_ns / 1'000'000 <= timeout_ms_) return "";
  return joined_ ? fmt::format("rank {} has made no progress for {} ms", peer, timeout_ms_)
                 : fmt::format("rank {} has not joined within {} ms", peer, timeout_ms_);
}

void Group::compare_intents() {
  for (int r = 0; r < size_; ++r) {
    std::string why = intents_differ(rank_, intent_, r, segment_.ranks[r].intents[phase_ & 1]);
    if (!why.empty()) fail(why);
  }
}

void Group::fail(const std::string& reason) {
  std::string message =
      fmt::format("rank {} in {} '{}': {}", rank_, intent_.operation, intent_.label, reason);
  abort(message);
  if (segment_.aborted.load() != static_cast<uint32_t>(rank_) + 1) check_abort();
  throw Error(DS_ERROR_COMM, message);
}

void Group::abort(std::string_view reason) {
  uint32_t none = 0;
  if (segment_.aborted.compare_exchange_strong(none, static_cast<uint32_t>(rank_) + 1)) {
    put_text(segment_.reason, sizeof segment_.reason, reason);
    segment_.reason_ready.store(1, std::memory_order_release);
  }
  for (int r = 0; r < size_; ++r) futex_wake(segment_.ranks[r].phase);
}

void Group::check_abort() {
  uint32_t by = segment_.aborted.load();
  if (by == 0) return;
  for (int i = 0; i < 1000 && segment_.reason_ready.load(std::memory_order_acquire) == 0; ++i)
    std::this_thread::yield();
  if (by == static_cast<uint32_t>(rank_) + 1) throw Error(DS_ERROR_COMM, segment_.reason);
  bool ready = segment_.reason_ready.load(std::memory_order_acquire) != 0;
  raise(DS_ERROR_COMM, "rank {} in {} '{}': the group was ended by rank {}: {}", rank_, intent_.operation,
        intent_.label, by - 1, ready ? segment_.reason : "(it died before it said why)");
}

std::unique_ptr<Communicator> make_group(std::unique_ptr<Sharing> sharing, const CommOptions& options) {
  return std::make_unique<Group>(std::move(sharing), options);
}

}  // namespace ds
