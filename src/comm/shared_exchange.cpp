// Problem. The ranks of one machine send each other parts of memory, round after round. A receiver
// must not read a part before it is there, a sender must not overwrite it while another rank reads,
// no rank may hang because another has died, and the cost of all this should be small compared with
// one pass over the bytes.
//
// Every rank has a block of words and a slot of two halves in a segment that all ranks map. The
// word `phase` counts the rounds that the rank has published; only its owner writes it.
//
// Invariant. A rank that has published round k + 1 has received all its parts of round k. This
// holds because round() first offers parts, then publishes them, then receives from every other
// rank, and receiving waits until the other rank's phase has reached this round. So when a rank has
// completed round k + 1, no other rank reads its parts of round k any longer. It may then overwrite
// the half, the offers and the intents of round k, and it does so in round k + 2, which has the
// same parity. Two halves are enough, and no round needs a barrier.
//
// Algorithm. A part can be moved in two ways. prepare() chooses one of them for a whole collective
// by facts that are the same on all ranks (the kind of its rounds, the largest part, whether there
// are more ranks than cores, whether ranks can read each other's memory), so sender and receiver
// never disagree:
// - staged: the sender copies the part into its half and offers the offset; the receiver copies it
//   out. Consecutive parts that are the same bytes are staged once. Parts that do not fit take
//   several rounds.
// - direct, above 1 MiB: the sender offers an address in its process, and the receiver reads there.
//   The part must not change until all ranks have read it, so a collective ends with an additional,
//   empty round (end()): a rank that has published that round has received the last parts. join()
//   finds out once whether every process can read every other: each rank publishes a random number
//   and its address, and all must read it there.
// The first round of a collective compares what the two ranks are about to do (compare()), so a
// divergence is an error that names both calls, not wrong bytes. A send and its receive (pair())
// use separate words in the blocks of both ranks. Each chunk takes two steps, "written" and "read";
// it uses the half of the next round, which by the invariant is free between rounds. An error ends
// the group on all ranks (drop(), abort()): the first rank to claim `aborted` writes the reason. A
// rank that has read another's memory checks `aborted` afterwards, because the owner may have left
// the round meanwhile and overwritten the part.
//
// Cost. On each rank, a round takes one store that the others see, waits for W - 1 words, and moves
// the bytes: staged bytes are copied twice (once in by the sender, once out by each receiver),
// bytes read directly once, which between processes takes a system call for each part. A rank spins
// on a word for some 50 us before it sleeps on it, because a sleep and a wake-up cost as much.
//
// Sources. Reading in place: Goglin and Moreaud, "KNEM: a generic and scalable kernel-assisted
// intra-node MPI communication framework" (J. Parallel Distrib. Comput. 73(2), 2013); the system
// call used here is Linux's process_vm_readv (transport/shm.cpp). Waking sleepers: Drepper,
// "Futexes are tricky" (2011). Measurements and decisions: docs/adr/0011.
#include "comm/shared_exchange.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <random>
#include <string_view>
#include <thread>

#include "comm/collectives/blocks.h"
#include "comm/communicator.h"
#include "comm/copy.h"
#include "core/base/error.h"
#include "core/base/process_mark.h"

namespace ds {
namespace {

// Larger parts are read directly. [M] At half this size, staging takes 0.6 times as long as direct
// reads, because caches hold both copies.
constexpr size_t kDirectBytes = size_t{1} << 20;
// Total bytes of all ranks' parts in one round of direct reads, if every rank sends the same part
// to all. All ranks read the parts in the same order, so that a shared cache holds them. [M] 256
// MiB at 2 ranks take 0.8 times as long as reading whole blocks if memory is slow, and 1.1 times as
// long if it is not.
constexpr size_t kTogether = size_t{8} << 20;

// Total bytes of all ranks' parts from which they are staged, if there are more ranks than cores
// and every rank sends its part to all (Round::same). [M] Staging takes 1.0 to 1.7 times as long as
// direct reads for 4 ranks with 1.25 MiB each on 2 cores, and 0.6 to 0.7 times as long for 8 ranks
// with 2 to 32 MiB each.
constexpr size_t kCrowdedBytes = size_t{8} << 20;
// Bytes of each rank's part in a round of such a collective. A core's cache holds two parts, so all
// ranks read them from caches.
constexpr size_t kCrowdedPart = size_t{256} << 10;

// Publishes the cores on which this rank may run, one bit each.
void publish_cores(RankBlock& own) {
  cpu_set_t set;
  static_assert(sizeof set == sizeof own.cores);
  // The call fails if the machine has more cores than the set has bits.
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;
  uint64_t words[sizeof set / sizeof(uint64_t)];
  std::memcpy(words, &set, sizeof set);
  for (size_t i = 0; i < std::size(words); ++i) own.cores[i].store(words[i]);
}

// Returns the number of cores on which any rank may run, or INT_MAX if that is not known.
int cores_of(const SharedSegment& segment, int ranks) {
  int count = 0;
  for (size_t i = 0; i < std::size(segment.ranks[0].cores); ++i) {
    uint64_t any = 0;
    for (int r = 0; r < ranks; ++r) any |= segment.ranks[r].cores[i].load();
    count += std::popcount(any);
  }
  return count > 0 ? count : INT_MAX;
}

}  // namespace

SharedExchange::SharedExchange(std::unique_ptr<Sharing> sharing, Membership place,
                               const CommOptions& options,
                               std::vector<std::shared_ptr<Sharing>> around)
    : Exchange(std::move(place)),
      sharing_(std::move(sharing)),
      around_(std::move(around)),
      segment_(sharing_->segment()),
      own_(segment_.ranks[options.rank]),
      world_(around_.empty() ? segment_ : around_.front()->segment()),
      shown_(world_.ranks[world(rank())]),
      process_(this_process().number),
      timeout_ms_(options.join_ms),
      join_ms_(options.join_ms),
      steps_(static_cast<size_t>(options.size)),
      none_(static_cast<size_t>(options.size)) {
  join(options);
  joined_ = true;
  timeout_ms_ = options.timeout_ms;
}

// A rank spins for some 50 us, because a sleep and a wake-up cost as much. If there are more ranks
// than cores, spinning keeps the others from running, and yielding the core costs less than
// sleeping ([M] 16 MiB at 8 ranks: 0.9 of the time).
void SharedExchange::set_cores(int cores) {
  crowded_ = size() > cores;
  spins_ = crowded_ ? 50 : 4000;
  yields_ = crowded_ ? 500 : 0;
}

// In the first round, each rank publishes a value and its address, and all others try to read it:
// processes of two containers or users cannot read each other's memory, even if they share a
// segment. After the second round, all ranks know the results of all, so they choose the same way.
void SharedExchange::join(const CommOptions& options) {
  bool direct = options.direct;
  // One core is assumed until the ranks have joined and published their cores.
  set_cores(options.cores > 0 ? options.cores : 1);
  publish_cores(own_);
  uint64_t cookie = std::random_device()();
  own_.process.store(process_);
  own_.cookie.store(cookie);
  own_.cookie_at.store(reinterpret_cast<uint64_t>(&cookie));
  Intent intent;
  intent.set(0, "join", "", 0, "");
  begin(intent);
  round(none_.data(), none_.data());
  for (int r = 0; r < size() && direct; ++r) {
    RankBlock& block = segment_.ranks[r];
    uint64_t seen = 0;
    direct = sharing_->read(r, block.cookie_at.load(), &seen, sizeof seen) &&
             seen == block.cookie.load();
  }
  own_.reads.store(direct ? 2 : 1);
  round(none_.data(), none_.data());
  can_read_ = true;
  for (int r = 0; r < size(); ++r) can_read_ = can_read_ && segment_.ranks[r].reads.load() == 2;
  set_cores(options.cores > 0 ? options.cores : cores_of(segment_, size()));
}

SharedExchange::~SharedExchange() {
  // A forked child has no part in the group.
  if (this_process().number != process_) {
    around_.push_back(std::move(sharing_));
    // Leaked on purpose: a forked child must not end the mappings of its parent.
    (void)new auto(std::move(around_));
    return;
  }
  leave();
}

int64_t SharedExchange::overhead_bytes() const {
  return static_cast<int64_t>(SharedSegment::bytes(size())) / size();
}

void SharedExchange::begin(const Intent& intent) {
  intent_ = intent;
  need_maker(intent_, process_);
  first_ = true;
  direct_ = false;
  // check_abort() comes last, so that its message names this collective.
  check_abort();
}

// Large parts are read directly, with one exception: if there are more ranks than cores and every
// rank sends its part to all, kCrowdedBytes or more in total, each part is copied once into a half
// that all ranks then read from a cache. Otherwise, parts that go to all ranks are read directly in
// several rounds, so that all ranks read the same bytes at about the same time.
size_t SharedExchange::prepare(Round kind, size_t bytes) {
  auto ranks = static_cast<size_t>(size());
  bool same = kind == Round::same, large = bytes > kDirectBytes;
  bool gathered = same && crowded_ && large && bytes * ranks >= kCrowdedBytes;
  whole_ = gathered ? bytes * ranks : bytes;
  direct_ = can_read_ && ranks > 1 && large && !gathered;
  if (direct_) return same ? kTogether / ranks : SIZE_MAX;
  if (same || kind == Round::one) return gathered ? kCrowdedPart : kHalf;
  return kHalf / ranks / 64 * 64;
}

// Only direct parts are seen in pieces; a piece of each rank's part fits into this rank's half of
// the round.
size_t SharedExchange::piece_bytes() const {
  return direct_ ? kHalf / static_cast<size_t>(size()) / 64 * 64 : SIZE_MAX;
}

void SharedExchange::drop(std::string_view reason) {
  // A forked child has no part in the group.
  if (this_process().number != process_) return;
  // The group is ended first, so that ranks that have borrowed from this rank do not wait for it.
  if (!ended()) abort(reason);
  sharing_->withdraw(rank());
}

void SharedExchange::borrow() {
  for (int r = 0; r < size(); ++r) {
    if (sharing_->borrow(r)) continue;
    while (--r >= 0) sharing_->give_back(r);
    // A rank withdraws only from a group that has ended.
    check_abort();
    raise(DS_ERROR_INTERNAL, "a rank has withdrawn from a group that has not ended");
  }
}

void SharedExchange::give_back() noexcept {
  for (int r = 0; r < size(); ++r) sharing_->give_back(r);
}

// Offers and staged parts are written to the table and the half of the next round's parity. By the
// invariant, no rank reads them any longer.
void SharedExchange::offer(const Part* sends) {
  SharedSegment::Line* lines = segment_.table(size(), rank());
  const uint32_t parity = (phase_ + 1) & 1;
  std::byte* stage = half(rank(), phase_ + 1);
  size_t used = 0;
  const Part* last = nullptr;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const Part& part = sends[r];
    Offer& offer = lines[r].offers[parity];
    if (direct_) {
      offer = {reinterpret_cast<uint64_t>(part.data), part.size};
    } else if (last && last->data == part.data && last->size == part.size) {
      offer = lines[last - sends].offers[parity];
    } else {
      offer = {used, part.size};
      copy(stage + used, part.data, part.size);
      used += part.size;
    }
    if (part.size != 0) last = &part;
  }
}

void SharedExchange::round(const Part* sends, const Part* receives) {
  offer(sends);
  publish();
  // All ranks read direct parts in the same order, so that a shared cache serves all readers but
  // the first. Staged parts are read from this rank on, so that the ranks do not all read the same
  // slot.
  for (int step = 0; step < size(); ++step) {
    int r = direct_ ? step : (rank() + step) % size();
    r == rank() ? take_own(sends, receives, whole_) : take(r, receives[r]);
  }
  first_ = false;
}

void SharedExchange::take(int peer, const Part& receive) {
  const RankBlock& block = segment_.ranks[peer];
  wait_for(peer, block.phase, phase_, false);
  if (first_) compare(peer, block.intents[phase_ & 1]);
  const Offer& offer = offered(peer);
  if (offer.bytes != receive.size) {
    fail(fmt::format("ranks differ: rank {} sends rank {} {} bytes, but that rank expects {}",
                     world(peer), world(rank()), offer.bytes, receive.size));
  }
  if (receive.data) fetch(peer, 0, receive.data, offer.bytes);
}

const std::byte* SharedExchange::see(int r, size_t offset, size_t bytes) {
  if (!direct_) return half(r, phase_) + offered(r).where + offset;
  // This rank's half of the round is free, because nothing is staged in it.
  std::byte* piece = half(rank(), phase_) + static_cast<size_t>(r) * piece_bytes();
  fetch(r, offset, piece, bytes);
  return piece;
}

void SharedExchange::fetch(int peer, size_t offset, void* to, size_t bytes) {
  const Offer& offer = offered(peer);
  if (direct_) return read(peer, offer.where + offset, to, bytes);
  ds::copy(to, half(peer, phase_) + offer.where + offset, bytes, whole_);
}

// A read may fail before the peer is known to be dead, because a dying process loses its memory
// before its lock. So this function waits up to 2 s for the peer's death to show.
void SharedExchange::read(int peer, uint64_t from, void* to, size_t bytes) {
  if (sharing_->read(peer, from, to, bytes)) {
    // The owner may have left this round and overwritten what was read.
    check_abort();
    tick();
    return;
  }
  for (int look = 0; look < 200; ++look) {
    check_abort();
    if (!sharing_->alive(peer)) lose(peer, fmt::format("rank {} is dead", world(peer)));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  fail(fmt::format("the memory of rank {} cannot be read ({} bytes)", world(peer), bytes));
}

void SharedExchange::end() {
  if (!direct_) return;
  round(none_.data(), none_.data());
  direct_ = false;
}

// Each chunk takes two steps: the sender has written it, and the receiver has read it.
void SharedExchange::pair(const Intent& intent, int peer, Part send, Part receive) {
  begin(intent);
  prepare(Round::each, intent.bytes);
  const RankBlock& block = segment_.ranks[peer];
  // The half of the next round is free between rounds.
  std::byte* stage = half(rank(), phase_ + 1);
  size_t most = direct_ ? SIZE_MAX : kHalf, first = 0;
  do {
    size_t n = std::min(most, intent.bytes - first);
    std::byte* data = static_cast<std::byte*>(send.data) + first;
    own_.meeting = intent;
    own_.met = {reinterpret_cast<uint64_t>(data), send.size};
    if (!direct_ && send.size != 0) ds::copy(stage, data, n);
    step_with(peer);
    if (first_) compare(peer, block.meeting);
    first_ = false;
    if (receive.size != 0) {
      std::byte* to = static_cast<std::byte*>(receive.data) + first;
      if (direct_) read(peer, block.met.where, to, n);
      if (!direct_) ds::copy(to, half(peer, phase_ + 1), n);
    }
    step_with(peer);
    first += n;
  } while (first < intent.bytes);
  direct_ = false;
}

std::unique_ptr<Exchange> SharedExchange::split(const std::string& name,
                                                const std::vector<int>& members,
                                                const std::string& group) {
  Membership subset = place().subset(members, group);
  CommOptions options;
  options.size = static_cast<int>(members.size());
  options.rank = subset.rank;
  options.timeout_ms = timeout_ms_;
  options.join_ms = join_ms_;
  options.direct = can_read_;
  // If the ranks of this group outnumber the cores, the new group is assumed to do so, too;
  // otherwise it does not.
  options.cores = crowded_ ? 1 : size();
  std::vector<std::shared_ptr<Sharing>> around = around_;
  around.push_back(sharing_);
  return std::make_unique<SharedExchange>(sharing_->make(name, options), std::move(subset), options,
                                          std::move(around));
}

std::unique_ptr<Communicator> make_shared(std::unique_ptr<Sharing> sharing,
                                          const CommOptions& options) {
  return std::make_unique<Communicator>(std::make_unique<SharedExchange>(
      std::move(sharing), Membership::whole(options.rank, options.size), options));
}

}  // namespace ds
