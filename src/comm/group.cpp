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
#include "core/base/hash.h"
#include "core/base/trace.h"

namespace ds {
namespace {

constexpr int64_t kSleepNs = 20'000'000;  // between looks at a peer that does not come

void futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  timespec limit{0, kSleepNs};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, value, &limit, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void put_text(char* to, size_t size, std::string_view text) {
  size_t count = std::min(size - 1, text.size());
  std::memcpy(to, text.data(), count);
  to[count] = '\0';
}

}  // namespace

Group::Group(std::unique_ptr<Sharing> sharing, const CommOptions& options)
    : sharing_(std::move(sharing)),
      segment_(sharing_->segment()),
      rank_(options.rank),
      size_(options.size),
      timeout_ms_(options.join_ms) {
  // More ranks than cores: spinning only keeps the others from running.
  spins_ = static_cast<unsigned>(size_) > std::thread::hardware_concurrency() ? 50 : 4000;
  barrier("join");
  joined_ = true;
  timeout_ms_ = options.timeout_ms;
}

Group::~Group() {
  segment_.ranks[rank_].left.store(1);
  futex_wake(segment_.ranks[rank_].phase);
}

int64_t Group::overhead_bytes() const { return static_cast<int64_t>(Segment::bytes(size_)) / size_; }

void Group::tick() { segment_.ranks[rank_].progress.fetch_add(1, std::memory_order_relaxed); }

void Group::begin(const char* operation, uint64_t bytes, std::string_view label) {
  check_abort();
  first_ = true;
  intent_.sequence = sequence_++;
  intent_.bytes = bytes;
  intent_.label_hash = hash64(label);
  put_text(intent_.operation, sizeof intent_.operation, operation);
  put_text(intent_.label, sizeof intent_.label, label);
}

std::byte* Group::mine() { return segment_.slot(size_, rank_) + ((phase_ + 1) & 1) * kHalf; }

const std::byte* Group::theirs(int rank) const { return segment_.slot(size_, rank) + (phase_ & 1) * kHalf; }

void Group::exchange() {
  RankBlock& own = segment_.ranks[rank_];
  ++phase_;
  own.intents[phase_ & 1] = intent_;
  own.progress.fetch_add(1, std::memory_order_relaxed);
  own.phase.store(phase_, std::memory_order_release);
  futex_wake(own.phase);
  for (int step = 1; step < size_; ++step) wait_for((rank_ + step) % size_, phase_);
  if (first_) compare_intents();
  first_ = false;
}

void Group::wait_for(int peer, uint32_t phase) {
  std::atomic<uint32_t>& word = segment_.ranks[peer].phase;
  auto reached = [&] { return static_cast<int32_t>(word.load(std::memory_order_acquire) - phase) >= 0; };
  for (int i = 0; i < spins_; ++i) {
    if (reached()) return;
    __builtin_ia32_pause();
  }
  uint32_t progress = segment_.ranks[peer].progress.load();
  int64_t since = now_ns();
  while (!reached()) {
    check_peer(peer, progress, since);
    uint32_t seen = word.load(std::memory_order_acquire);
    if (static_cast<int32_t>(seen - phase) >= 0) return;
    futex_wait(word, seen);
    tick();  // waiting for a slow peer is no standstill of this rank
  }
}

// Throws when the peer cannot come any more.
void Group::check_peer(int peer, uint32_t& progress, int64_t& since) {
  check_abort();
  RankBlock& block = segment_.ranks[peer];
  bool started = joined_ || block.phase.load() > 0;
  if (started && block.left.load() != 0) fail(fmt::format("rank {} has left the group", peer));
  if (started && !sharing_->alive(peer)) fail(fmt::format("rank {} is dead", peer));
  uint32_t now = block.progress.load();
  if (now != progress) {
    progress = now;
    since = now_ns();
  }
  if (now_ns() - since > timeout_ms_ * 1'000'000) {
    fail(joined_ ? fmt::format("rank {} has made no progress for {} ms", peer, timeout_ms_)
                 : fmt::format("rank {} has not joined within {} ms", peer, timeout_ms_));
  }
}

void Group::compare_intents() {
  for (int r = 0; r < size_; ++r) {
    const Intent& other = segment_.ranks[r].intents[phase_ & 1];
    if (other.sequence == intent_.sequence && other.bytes == intent_.bytes &&
        other.label_hash == intent_.label_hash && std::strcmp(other.operation, intent_.operation) == 0) {
      continue;
    }
    fail(fmt::format(
        "ranks differ: rank {} calls {} '{}' of {} bytes as number {}, rank {} calls {} '{}' of {} bytes as "
        "number {}",
        rank_, intent_.operation, intent_.label, intent_.bytes, intent_.sequence, r, other.operation,
        other.label, other.bytes, other.sequence));
  }
}

void Group::fail(const std::string& reason) {
  std::string message =
      fmt::format("rank {} in {} '{}': {}", rank_, intent_.operation, intent_.label, reason);
  abort(message);
  check_abort();
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

void Group::chunks(size_t bytes, size_t most, const std::function<void(size_t, size_t)>& body) {
  size_t offset = 0;
  do {
    size_t part = std::min(most, bytes - offset);
    body(offset, part);
    offset += part;
  } while (offset < bytes);
}

std::unique_ptr<Communicator> make_group(std::unique_ptr<Sharing> sharing, const CommOptions& options) {
  return std::make_unique<Group>(std::move(sharing), options);
}

}  // namespace ds
