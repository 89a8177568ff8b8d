#include "comm/linked_exchange.h"

#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/trace.h"

namespace ds {
namespace {

constexpr size_t kMost = size_t{256} << 20;      // bytes of one part
constexpr size_t kStagePart = size_t{1} << 20;   // of one rank's part of a sum
constexpr int64_t kBeatNs = 100'000'000;         // between signs of life
constexpr int64_t kLookNs = 20'000'000;          // between looks at who is missing
constexpr int64_t kLongestStepNs = 200'000'000;  // of one look; more is this rank's own standstill
constexpr int kSpins = 2000;                     // polls before this thread gives its core away
constexpr std::chrono::microseconds kNap{50};

// The same for all processes of a running host, and for no other host.
uint64_t host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return hash64(boot + "/" + name);
}

}  // namespace

Link::Link(const ds_plugin_transport_table& table, const std::string& address, const CommOptions& options)
    : transport(table), rank(options.rank), size(options.size) {
  if (transport.open(address.c_str(), rank, size, options.join_ms, &link) != 0) {
    raise(DS_ERROR_COMM, "rank {} cannot join over {}: {}", rank, transport.name, transport.message(nullptr));
  }
}

LinkedExchange::LinkedExchange(std::shared_ptr<Link> link, std::vector<int> members, int rank,
                               const CommOptions& options)
    : Exchange(rank, static_cast<int>(members.size())),
      link_(std::move(link)),
      members_(std::move(members)),
      timeout_ms_(options.timeout_ms) {
  auto ranks = static_cast<size_t>(link_->size);
  intents_.resize(members_.size());
  stage_.resize(members_.size() * kStagePart);
  sends_.resize(ranks);
  receives_.resize(ranks);
  arrived_.resize(ranks);
  beats_.resize(ranks);
  patience_.resize(ranks);
  find_neighbours();
}

void LinkedExchange::find_neighbours() {
  std::vector<uint64_t> hosts(members_.size());
  std::vector<Part> sends(members_.size()), receives(members_.size());
  uint64_t own = host_identity();
  for (size_t r = 0; r < hosts.size(); ++r) {
    sends[r] = {&own, sizeof own};
    receives[r] = {&hosts[r], sizeof own};
  }
  intent_.set(0, "join", "", sizeof own, "");
  check_abort();
  swap(sends.data(), receives.data(), -1);
  hosts[static_cast<size_t>(rank())] = own;
  local_size_ = static_cast<int>(std::count(hosts.begin(), hosts.end(), own));
  local_rank_ = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank(), own));
}

void LinkedExchange::begin(const Intent& intent) {
  intent_ = intent;
  check_abort();
  agree(-1);
}

void LinkedExchange::agree(int only) {
  std::vector<Part> sends(members_.size(), Part{&intent_, sizeof intent_}), receives(members_.size());
  for (size_t r = 0; r < receives.size(); ++r) receives[r] = {&intents_[r], sizeof intents_[r]};
  swap(sends.data(), receives.data(), only);
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || (only >= 0 && r != only)) continue;
    std::string why = intents_differ(rank(), intent_, r, intents_[static_cast<size_t>(r)]);
    if (!why.empty()) fail(why);
  }
}

size_t LinkedExchange::part_bytes(Round kind) const { return kind == Round::seen ? kStagePart : kMost; }

void LinkedExchange::round(const Part* sends, const Part* receives) {
  std::vector<Part> places(receives, receives + size());
  for (size_t r = 0; r < places.size(); ++r) {
    if (!places[r].data) places[r].data = stage_.data() + r * kStagePart;
  }
  swap(sends, places.data(), -1);
}

const std::byte* LinkedExchange::see(int r, size_t offset, size_t) {
  return stage_.data() + static_cast<size_t>(r) * kStagePart + offset;
}

void LinkedExchange::swap(const Part* sends, const Part* receives, int only) {
  std::fill(sends_.begin(), sends_.end(), Part{});
  std::fill(receives_.begin(), receives_.end(), Part{});
  for (int r = 0; r < size(); ++r) {
    if (r == rank() || (only >= 0 && r != only)) continue;
    sends_[place(r)] = sends[r];
    receives_[place(r)] = receives[r];
  }
  if (link_->transport.start(link_->link, sends_.data(), receives_.data()) != 0) {
    fail(link_->transport.message(link_->link));
  }
  wait();
}

// Swaps of two ranks: others take no part.
void LinkedExchange::pair(const Intent& intent, int peer, Part send, Part receive) {
  intent_ = intent;
  check_abort();
  agree(peer);
  std::vector<Part> sends(members_.size()), receives(members_.size());
  auto r = static_cast<size_t>(peer);
  for (size_t first = 0; first < intent.bytes; first += kMost) {
    size_t n = std::min(kMost, intent.bytes - first);
    sends[r] = send.size != 0 ? Part{static_cast<std::byte*>(send.data) + first, n} : Part{};
    receives[r] = receive.size != 0 ? Part{static_cast<std::byte*>(receive.data) + first, n} : Part{};
    swap(sends.data(), receives.data(), peer);
  }
}

std::unique_ptr<Exchange> LinkedExchange::split(const std::string&, const std::vector<int>& members) {
  std::vector<int> places;
  for (int r : members) places.push_back(static_cast<int>(place(r)));
  CommOptions options;
  options.timeout_ms = timeout_ms_;
  auto at = std::find(members.begin(), members.end(), rank());
  return std::make_unique<LinkedExchange>(link_, places, static_cast<int>(at - members.begin()), options);
}

void LinkedExchange::wait() {
  looked_ns_ = 0;
  for (int turn = 0;; ++turn) {
    int32_t done = 0;
    if (link_->transport.poll(link_->link, &done, arrived_.data(), beats_.data()) != 0)
      fail(link_->transport.message(link_->link));
    if (done) return;
    if (turn < kSpins) {
      _mm_pause();
      continue;
    }
    int64_t now = now_ns();
    if (looked_ns_ == 0) {
      for (size_t r = 0; r < patience_.size(); ++r) patience_[r] = {beats_[r], 0};
      looked_ns_ = now;
    }
    if (now - looked_ns_ >= kLookNs) {
      check_abort();
      int64_t step = std::min(now - looked_ns_, kLongestStepNs);
      looked_ns_ = now;
      for (int r = 0; r < size(); ++r) {
        if (r == rank() || arrived_[place(r)] != 0) continue;
        patience_[place(r)].waited_ns += step;
        look_at(r);
      }
      tick();
    }
    if (turn % 2 == 0) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

void LinkedExchange::look_at(int peer) {
  auto there = static_cast<int32_t>(place(peer));
  if (link_->transport.has_left(link_->link, there) != 0)
    fail(fmt::format("rank {} has left the group", peer));
  Patience& patience = patience_[place(peer)];
  uint64_t beats = beats_[place(peer)];
  if (patience.beats != beats) patience = {beats, 0};
  if (patience.waited_ns / 1'000'000 > timeout_ms_) {
    fail(fmt::format("rank {} has made no progress for {} ms", peer, timeout_ms_));
  }
}

void LinkedExchange::tick() {
  int64_t now = now_ns();
  if (now - link_->beaten_ns < kBeatNs) return;
  link_->beaten_ns = now;
  link_->transport.beat(link_->link);
}

void LinkedExchange::abort(std::string_view reason) {
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
  raise(DS_ERROR_COMM, "rank {} in {} '{}': the group was ended by rank {}: {}", rank(), intent_.operation,
        intent_.label, by, link_->transport.message(link_->link));
}

void LinkedExchange::drop(std::string_view reason) {
  if (link_->transport.aborted_by(link_->link) < 0) abort(reason);
}

void LinkedExchange::fail(const std::string& reason) {
  check_abort();  // what ended the group first is the cause
  std::string message =
      fmt::format("rank {} in {} '{}': {}", rank(), intent_.operation, intent_.label, reason);
  abort(message);
  throw Error(DS_ERROR_COMM, message);
}

std::unique_ptr<Communicator> make_linked(const ds_plugin_transport_table& transport,
                                          const std::string& address, const CommOptions& options) {
  auto link = std::make_shared<Link>(transport, address, options);
  std::vector<int> all(static_cast<size_t>(options.size));
  std::iota(all.begin(), all.end(), 0);
  return std::make_unique<Communicator>(
      std::make_unique<LinkedExchange>(std::move(link), std::move(all), options.rank, options));
}

}  // namespace ds
