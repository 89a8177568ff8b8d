// Problem. Ranks that share no memory must run the same collectives, with the same bits, over
// whatever moves bytes between hosts. A transport (include/ds_plugin.h) only sends and receives
// parts, in the order in which they were started; it knows nothing of collectives, sums and
// time-outs.
//
// Invariant. Between two ranks of a group, the n-th part that one sends is the n-th that the other
// expects, with the same size. Nothing on the wire identifies a part, so both ranks must have
// started the same swaps before it. They have, because a rank starts one swap at a time and polls
// until it is complete (wait()), and because every collective begins with a swap of digests of the
// ranks' intents (agree()): ranks that are about to do different things learn it before the first
// byte of data. Both ranks then know of the difference, so they swap the intents themselves, and
// the group ends with an error that names both. Groups that were split from one link share its
// order of swaps, so an intent also contains the sequence number of the collective in its group.
//
// Algorithm. begin() swaps digests with all ranks. Each round is one swap of all its parts
// (round()), directly into the memory where they are needed. The parts of a sum, which are read
// piece by piece (see()) and have no destination, are received into a stage of at most 1 MiB for
// each rank and 64 MiB for all. The collective itself adds them up, always in the order of
// reduction.h, so a transport cannot change results. A send and its receive swap with one peer
// alone (pair()). A rank that waits polls; after 2000 polls, or 20 if there are more ranks than
// cores, it yields or sleeps between polls. Every 20 ms it checks on each rank whose part has not
// arrived: a rank that has closed its link, or that has made no progress for the time-out
// (patience.h), is given up, and the group ends. A rank sends heartbeats at most every 100 ms (in
// groups of more than 31 ranks, less often): when it begins a collective, when it marks progress
// (tick()) and while it waits.
//
// Cost. For each collective, a rank sends and receives W - 1 digests of 8 bytes besides its parts.
// The memory is the stage and some 170 bytes for each other rank. Parts for other ranks are not
// copied here.
//
// Source. docs/adr/0010 describes how the work is divided between collectives and transports.
// Intents are compared in the first round, as in the exchange over shared memory.
#include "comm/linked_exchange.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "comm/blame.h"
#include "comm/communicator.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/process_mark.h"
#include "core/base/relax.h"
#include "core/base/trace.h"

namespace ds {
namespace {

// The shortest time between two heartbeats. It grows with each kBeatenAtOnce ranks of the world.
constexpr int64_t kBeatNs = 100'000'000;
constexpr int kBeatenAtOnce = 16;
// Time between two checks on the ranks whose parts are missing.
constexpr int64_t kLookNs = 20'000'000;
// Number of polls before this thread yields its core: kSpins if each rank of the host has a core,
// otherwise kCrowdedSpins.
constexpr int kSpins = 2000, kCrowdedSpins = 20;
constexpr std::chrono::microseconds kNap{50};

// Packs a heartbeat into 8 bytes: from the highest bits, 1 + the rank waited for (16 bits), the
// pulse (16) and the work (32).
uint64_t packed(const Sign& sign) {
  return static_cast<uint64_t>(sign.waits_for + 1) << 48 | uint64_t{sign.pulse & 0xffff} << 32 |
         sign.work;
}

// Heartbeats as received over the link. Moved bytes of a rank's parts also count as its work,
// because one part may take longer than the time-out.
class SignsOfLife final : public World {
 public:
  SignsOfLife(const std::vector<uint64_t>& signs, const std::vector<uint64_t>& moved,
              const Link& link)
      : signs_(signs), moved_(moved), link_(link) {}
  Sign sign(int rank) const override {
    if (rank == link_.rank) return link_.shown;
    uint64_t word = signs_[static_cast<size_t>(rank)];
    int waits_for = static_cast<int>(word >> 48) - 1;
    return {static_cast<uint32_t>(word + moved_[static_cast<size_t>(rank)]),
            static_cast<uint32_t>(word >> 32) & 0xffff, waits_for < link_.size ? waits_for : -1};
  }
  std::string doing(int) const override { return ""; }

 private:
  const std::vector<uint64_t>& signs_;
  const std::vector<uint64_t>& moved_;
  const Link& link_;
};

}  // namespace

Link::Link(const ds_plugin_transport_table& table, const std::string& address,
           const CommOptions& options)
    : transport(table), rank(options.rank), size(options.size), process(this_process().number) {
  if (transport.open(address.c_str(), rank, size, options.join_ms, &link) != 0) {
    raise(DS_ERROR_COMM, "rank {} cannot join over {}: {}", RankNumber(rank), transport.name,
          transport.message(nullptr));
  }
  if (std::string_view warning = transport.message(link); !warning.empty())
    log_line(LogLevel::warning, fmt::format("rank {} over {}: {}", rank, transport.name, warning));
}

// The connections belong to the parent process, so a forked child must not close the link.
Link::~Link() {
  if (this_process().number == process) transport.close(link);
}

LinkedExchange::LinkedExchange(std::shared_ptr<Link> link, Membership place,
                               const CommOptions& options)
    : Exchange(std::move(place)),
      link_(std::move(link)),
      timeout_ms_(options.timeout_ms),
      stage_(size()) {
  auto ranks = static_cast<size_t>(link_->size), own = static_cast<size_t>(size());
  digests_.resize(own);
  sends_.resize(ranks);
  receives_.resize(ranks);
  arrived_.resize(ranks);
  signs_.resize(ranks);
  moved_.resize(ranks);
  patience_.resize(ranks);
  left_ns_.resize(ranks);
  greet();
}

void LinkedExchange::greet() {
  std::vector<Greeting> all(static_cast<size_t>(size()), Greeting::own());
  Greeting own = all[0];
  std::vector<Part> sends(all.size(), Part{&own, sizeof own}), receives(all.size());
  for (size_t r = 0; r < all.size(); ++r) receives[r] = {&all[r], sizeof own};
  intent_.set(0, "join", "", sizeof own, "");
  check_abort();
  swap(sends.data(), receives.data(), -1);
  std::string reason;
  neighbours_ = meet_neighbours(place(), all, &reason);
  if (!reason.empty()) fail(reason);
  cpu_set_t cores;
  bool known = sched_getaffinity(0, sizeof cores, &cores) == 0;
  spins_ = known && neighbours_.size > CPU_COUNT(&cores) ? kCrowdedSpins : kSpins;
}

// Ranks swap only digests, because a digest has 8 bytes and ranks nearly always agree.
void LinkedExchange::begin(const Intent& intent) {
  intent_ = intent;
  agree(-1);
}

void LinkedExchange::agree(int only) {
  need_maker(intent_, link_->process);
  check_abort();
  tick();
  uint64_t own = intent_.digest();
  std::vector<Part> sends(digests_.size(), Part{&own, sizeof own}), receives(digests_.size());
  for (size_t r = 0; r < receives.size(); ++r) receives[r] = {&digests_[r], sizeof digests_[r]};
  swap(sends.data(), receives.data(), only);
  std::vector<int> others;
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || (only >= 0 && r != only)) continue;
    if (digests_[static_cast<size_t>(r)] != own) others.push_back(r);
  }
  if (!others.empty()) disagree(others);
}

// Two ranks swap intents exactly if their digests differ, which both of them have seen.
void LinkedExchange::disagree(const std::vector<int>& others) {
  std::vector<Part> sends(digests_.size()), receives(digests_.size());
  std::vector<Intent> theirs(others.size());
  for (size_t i = 0; i < others.size(); ++i) {
    const auto r = static_cast<size_t>(others[i]);
    sends[r] = {&intent_, sizeof intent_};
    receives[r] = {&theirs[i], sizeof theirs[i]};
  }
  swap(sends.data(), receives.data(), -1);
  const std::string reason = intents_differ(world(rank()), intent_, world(others[0]), theirs[0]);
  fail(reason.empty() ? fmt::format("rank {} has sent the digest of another call", world(others[0]))
                      : reason);
}

size_t LinkedExchange::prepare(Round kind, size_t) {
  return kind == Round::seen ? stage_.part_bytes() : kMostPart;
}

void LinkedExchange::round(const Part* sends, const Part* receives) {
  swap(sends, stage_.places(rank(), receives), -1);
}

const std::byte* LinkedExchange::see(int r, size_t offset, size_t) { return stage_.of(r) + offset; }

void LinkedExchange::swap(const Part* sends, const Part* receives, int only) {
  std::ranges::fill(sends_, Part{});
  std::ranges::fill(receives_, Part{});
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || (only >= 0 && r != only)) continue;
    sends_[seat(r)] = sends[r];
    receives_[seat(r)] = receives[r];
  }
  if (link_->transport.start(link_->link, sends_.data(), receives_.data()) != 0) {
    fail(link_->transport.message(link_->link));
  }
  if (only < 0) take_own(sends, receives, 0);
  wait();
}

// Swaps with one peer alone; the other ranks are not involved.
void LinkedExchange::pair(const Intent& intent, int peer, Part send, Part receive) {
  intent_ = intent;
  agree(peer);
  std::vector<Part> sends(digests_.size()), receives(digests_.size());
  auto r = static_cast<size_t>(peer);
  for (size_t first = 0; first < intent.bytes; first += kMostPart) {
    size_t n = std::min(kMostPart, intent.bytes - first);
    sends[r] = send.size != 0 ? Part{static_cast<std::byte*>(send.data) + first, n} : Part{};
    receives[r] =
        receive.size != 0 ? Part{static_cast<std::byte*>(receive.data) + first, n} : Part{};
    swap(sends.data(), receives.data(), peer);
  }
}

std::unique_ptr<Exchange> LinkedExchange::split(const std::string&, const std::vector<int>& members,
                                                const std::string& group) {
  CommOptions options;
  options.timeout_ms = timeout_ms_;
  return std::make_unique<LinkedExchange>(link_, place().subset(members, group), options);
}

bool LinkedExchange::poll() {
  int32_t done = 0;
  if (link_->transport.poll(link_->link, &done, arrived_.data(), signs_.data()) != 0)
    fail(link_->transport.message(link_->link));
  return done != 0;
}

void LinkedExchange::wait() {
  int64_t looked_ns = 0;
  for (int64_t turn = 0;; ++turn) {
    if (poll()) break;
    if (turn < spins_) {
      cpu_relax();
      continue;
    }
    int64_t now = now_ns();
    if (looked_ns == 0) {
      // The first check comes one interval later, because the reason for the group's end may follow
      // the last part.
      std::ranges::fill(patience_, Patience{});
      looked_ns = now;
    }
    if (now - looked_ns >= kLookNs) {
      looked_ns = now;
      check_abort();
      link_->shown.waits_for = -1;
      for (int r = 0; r < size(); ++r) {
        if (r != rank() && arrived_[seat(r)] == 0) look_at(r, now);
      }
      ++link_->shown.pulse;
      beat(now);
    }
    if (turn % 2 == 0) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
  link_->shown.waits_for = -1;
  ++link_->shown.work;
}

// A rank that has just left may already have done its part of the work that is waited for, so
// leaving is an error only after a grace period.
void LinkedExchange::watch(const Intent& intent) {
  constexpr int64_t kGraceNs = 2'000'000'000;
  intent_ = intent;
  check_abort();
  poll();
  const int64_t now = now_ns();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    see_moved(r);
    int64_t& since = left_ns_[seat(r)];
    if (link_->transport.has_left(link_->link, world(r)) == 0) {
      since = 0;
    } else if (since == 0) {
      since = now;
    } else if (now - since > kGraceNs) {
      lose(r, fmt::format("rank {} has left the group", world(r)));
    }
    std::string reason =
        patience_[seat(r)].look(SignsOfLife(signs_, moved_, *link_), world(r), now, timeout_ms_);
    if (!reason.empty()) lose(r, reason + stalled(r));
  }
  ++link_->shown.pulse;
  beat(now);
}

void LinkedExchange::look_at(int peer, int64_t now) {
  if (link_->transport.has_left(link_->link, world(peer)) != 0) {
    // The rank's part may have arrived before it left.
    poll();
    if (arrived_[seat(peer)] != 0) return;
    lose(peer, fmt::format("rank {} has left the group", world(peer)));
  }
  if (link_->shown.waits_for < 0) link_->shown.waits_for = world(peer);
  see_moved(peer);
  std::string reason = patience_[seat(peer)].look(SignsOfLife(signs_, moved_, *link_), world(peer),
                                                  now, timeout_ms_);
  if (!reason.empty()) lose(peer, reason + stalled(peer));
}

void LinkedExchange::see_moved(int peer) {
  const uint64_t moved = link_->transport.moved(link_->link, world(peer));
  if (moved != std::exchange(moved_[seat(peer)], moved)) ++link_->shown.work;
}

std::string LinkedExchange::stalled(int peer) const {
  const std::string_view clause = link_->transport.stall(link_->link, world(peer));
  return clause.empty() ? "" : fmt::format("; {}", clause);
}

void LinkedExchange::lose(int peer, const std::string& reason) {
  blame_rank(world(peer), link_->size);
  fail(reason, world(peer));
}

void LinkedExchange::tick() {
  ++link_->shown.work;
  beat(now_ns());
}

void LinkedExchange::beat(int64_t now) {
  // Heartbeats of hundreds of ranks to each other must leave time for work, so the interval grows
  // with the group, up to a quarter of the time-out, and to 15 s at most.
  const int64_t seldom = kBeatNs * std::max(1, link_->size / kBeatenAtOnce);
  const int64_t between =
      std::max(kBeatNs, std::min(seldom, std::min<int64_t>(timeout_ms_, 60000) * 1'000'000 / 4));
  if (now - link_->beaten_ns < between) return;
  link_->beaten_ns = now;
  link_->transport.beat(link_->link, packed(link_->shown));
}

void LinkedExchange::abort(std::string_view reason) {
  if (this_process().number != link_->process) return;
  std::lock_guard lock(link_->mutex);
  if (!link_->ended.empty()) return;
  link_->ended = reason.empty() ? "no reason given" : std::string(reason);
  link_->transport.abort(link_->link, link_->ended.c_str());
}

void LinkedExchange::check_abort() {
  {
    std::lock_guard lock(link_->mutex);
    if (!link_->ended.empty()) throw Error(DS_ERROR_COMM, link_->ended);
  }
  int by = link_->transport.aborted_by(link_->link);
  if (by < 0) return;
  blame_rank(by, link_->size);
  raise(DS_ERROR_COMM, "{}: the group was ended by rank {}: {}", here(intent_), RankNumber(by),
        link_->transport.message(link_->link));
}

void LinkedExchange::drop(std::string_view reason) {
  if (this_process().number != link_->process) return;
  if (link_->transport.aborted_by(link_->link) < 0) abort(reason);
}

void LinkedExchange::fail(const std::string& reason, int about) {
  // The error that ended the group first is the cause.
  check_abort();
  std::string message = fmt::format("{}: {}", here(intent_), reason);
  abort(message);
  throw Error(DS_ERROR_COMM, message, {.rank = about});
}

std::unique_ptr<Communicator> make_linked(const ds_plugin_transport_table& transport,
                                          const std::string& address, const CommOptions& options) {
  auto link = std::make_shared<Link>(transport, address, options);
  return std::make_unique<Communicator>(std::make_unique<LinkedExchange>(
      std::move(link), Membership::whole(options.rank, options.size), options));
}

}  // namespace ds
