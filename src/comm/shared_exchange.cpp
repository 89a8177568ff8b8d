// Problem. The ranks of one machine give each other parts of memory, round after round. A receiver
// must not read a part before it is there, a sender must not overwrite it while someone reads, no
// rank may hang for one that has died, and what all this costs should be little beside one pass
// over the bytes.
//
// Every rank has a block of words and a slot of two halves in a segment that all map. The word
// `phase` counts the rounds that the rank has published; only its owner writes it.
//
// Invariant. A rank that has published round k + 1 has taken everything that round k gave it. For a
// round is offer, publish, then take from every other rank, in this order (round()), and taking
// waits until the other's phase has come to this round. So a rank that is done with round k + 1
// knows that nobody reads its parts of round k any more: it may write into the half, the offers and
// the intents of round k, and it does so in round k + 2, which has the same parity. Two halves are
// enough, and no round needs a barrier.
//
// Algorithm. There are two ways for a part to cross, and prepare() chooses one for a whole
// collective by what is the same on all ranks (the kind of its rounds, the largest part, whether
// ranks are more than cores), so that sender and receiver never disagree:
//  - staged: the sender copies the part into its half and offers the offset; the receiver copies it
//  out.
//    Parts that follow each other and are the same bytes are staged once. What does not fit goes in
//    several rounds.
//  - direct, above 1 MiB: the sender offers an address of its process, and the receiver reads
//  there. The
//    part must stay as it is until all have read it, so a collective ends with one empty round more
//    (end()): who has published that has taken the last parts. Whether every process can read every
//    other is found out once, in join(): each shows a random number and where it keeps it, and all
//    must read it there.
// The first round of a collective compares what the two ranks are about to do (compare()): a
// divergence is an error that names both, not wrong bytes. A meeting of two (pair()) has words of
// its own in both blocks, of two steps for each chunk, "it is there" and "it is taken"; it borrows
// the half of the next round, which the invariant says is free between rounds. An error ends the
// group for all (drop(), abort()): the first rank to claim `aborted` writes the reason. Whoever
// reads another's memory then checks `aborted` once more, because the owner may have left the round
// meanwhile and written over what was read.
//
// Cost, per round and rank: one store that the others see, W - 1 words to wait for, and the bytes:
// copied twice when staged (once in by the sender, once out by each receiver), once when read
// directly, which between processes costs a system call a part. A word is looked at for some 50 us
// before the rank sleeps on it, for a sleep and a wake cost as much.
//
// Sources. Reading in place: Goglin and Moreaud, "KNEM: a generic and scalable kernel-assisted
// intra-node MPI communication framework" (J. Parallel Distrib. Comput. 73(2), 2013); the system
// call here is Linux's own, process_vm_readv (transport/shm.cpp). Waking sleepers: Drepper,
// "Futexes are tricky" (2011). What was measured and decided: docs/adr/0011.
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

#include "comm/blocks.h"
#include "comm/communicator.h"
#include "comm/copy.h"
#include "core/base/error.h"

namespace ds {
namespace {

// A larger part is read where it lies: [M] at half of it staging takes 0.6 of the time, caches hold
// both.
constexpr size_t kDirectBytes = size_t{1} << 20;
// What all ranks read of all others in one round, all in one order: a cache that they share holds
// it. [M] 256 MiB at 2 ranks: 0.8 of the time of whole blocks where memory is slow, 1.1 where it is
// not.
constexpr size_t kTogether = size_t{8} << 20;

// From here on crowded ranks stage what all of them gather. [M] 4 ranks of 1.25 MiB on 2 cores: 1.0
// to 1.7 of the time of reading in place; 8 of 2 to 32 MiB: 0.6 to 0.7.
constexpr size_t kCrowdedBytes = size_t{8} << 20;
// Of one rank, meanwhile: its cache holds two, and all read them out of caches.
constexpr size_t kCrowdedPart = size_t{256} << 10;

void publish_cores(RankBlock& own) {
  cpu_set_t set;
  static_assert(sizeof set == sizeof own.cores);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return;  // more cores than a set has
  uint64_t words[sizeof set / sizeof(uint64_t)];
  std::memcpy(words, &set, sizeof set);
  for (size_t i = 0; i < std::size(words); ++i) own.cores[i].store(words[i]);
}

// How many cores there are that a rank may run on; INT_MAX: not known.
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
      process_(getpid()),
      timeout_ms_(options.join_ms),
      join_ms_(options.join_ms),
      steps_(static_cast<size_t>(options.size)),
      none_(static_cast<size_t>(options.size)) {
  join(options);
  joined_ = true;
  timeout_ms_ = options.timeout_ms;
}

// Some 50 us: a sleep and a wake cost as much. With more ranks than cores, spinning keeps the
// others from running; giving the core to them costs less than a sleep ([M] 16 MiB at 8 ranks: 0.9
// of the time).
void SharedExchange::set_cores(int cores) {
  crowded_ = size() > cores;
  spins_ = crowded_ ? 50 : 4000;
  yields_ = crowded_ ? 500 : 0;
}

// The first round shows each rank a value in the memory of each other one: processes of two
// containers or users cannot read each other, though they share a segment. What rounds depend on is
// the same on all ranks.
void SharedExchange::join(const CommOptions& options) {
  bool direct = options.direct;
  set_cores(options.cores > 0 ? options.cores : 1);  // it is not known yet who is there
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
  if (getpid() != process_) {  // a forked child has no part in the group
    around_.push_back(std::move(sharing_));
    (void)new auto(std::move(around_));  // never ends: the mappings are not its own
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
  check_abort();  // last: the message names this collective
}

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

size_t SharedExchange::piece_bytes() const {
  return direct_ ? kHalf / static_cast<size_t>(size()) / 64 * 64 : SIZE_MAX;
}

void SharedExchange::drop(std::string_view reason) {
  if (getpid() != process_) return;  // a forked child has no part in the group
  if (!ended())
    abort(reason);  // first, so that those who have borrowed from this rank do not wait for it
  sharing_->withdraw(rank());
}

void SharedExchange::borrow() {
  for (int r = 0; r < size(); ++r) {
    if (sharing_->borrow(r)) continue;
    while (--r >= 0) sharing_->give_back(r);
    check_abort();  // a rank withdraws when the group has ended
    raise(DS_ERROR_INTERNAL, "a rank has withdrawn from a group that has not ended");
  }
}

void SharedExchange::give_back() noexcept {
  for (int r = 0; r < size(); ++r) sharing_->give_back(r);
}

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
  // What lies in place all read in the same order, so that a cache that they share serves all but
  // the first.
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
    fail(fmt::format("ranks differ: rank {} gives rank {} {} bytes, which expects {}", world(peer),
                     world(rank()), offer.bytes, receive.size));
  }
  if (receive.data) fetch(peer, 0, receive.data, offer.bytes);
}

const std::byte* SharedExchange::see(int r, size_t offset, size_t bytes) {
  if (!direct_) return half(r, phase_) + offered(r).where + offset;
  // This rank's own half of the round is free: nothing is staged.
  std::byte* piece = half(rank(), phase_) + static_cast<size_t>(r) * piece_bytes();
  fetch(r, offset, piece, bytes);
  return piece;
}

void SharedExchange::fetch(int peer, size_t offset, void* to, size_t bytes) {
  const Offer& offer = offered(peer);
  if (direct_) return read(peer, offer.where + offset, to, bytes);
  ds::copy(to, half(peer, phase_) + offer.where + offset, bytes, whole_);
}

// A process that dies loses its memory before its lock.
void SharedExchange::read(int peer, uint64_t from, void* to, size_t bytes) {
  if (sharing_->read(peer, from, to, bytes)) {
    check_abort();  // the owner may have left this round, and have written over what was read
    tick();
    return;
  }
  for (int look = 0; look < 200; ++look) {
    check_abort();
    if (!sharing_->alive(peer)) lose(peer, fmt::format("rank {} is dead", world(peer)));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  fail(fmt::format("rank {}: its {} bytes cannot be read", world(peer), bytes));
}

void SharedExchange::end() {
  if (!direct_) return;
  round(none_.data(), none_.data());
  direct_ = false;
}

// Each chunk is two steps: it is there, it is taken.
void SharedExchange::pair(const Intent& intent, int peer, Part send, Part receive) {
  begin(intent);
  prepare(Round::each, intent.bytes);
  const RankBlock& block = segment_.ranks[peer];
  std::byte* stage = half(rank(), phase_ + 1);  // free between two rounds
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
  options.cores = crowded_ ? 1 : size();  // a part of a crowd is crowded, no other
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
