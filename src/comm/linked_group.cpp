#include "comm/linked_group.h"

#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
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

void copy(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

std::byte* at(void* data, size_t offset) { return static_cast<std::byte*>(data) + offset; }
const std::byte* at(const void* data, size_t offset) { return static_cast<const std::byte*>(data) + offset; }

ds_plugin_part part(const void* data, size_t bytes) { return {const_cast<void*>(data), bytes}; }

// The same for all processes of a running host, and for no other host.
uint64_t host_identity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return hash64(boot + "/" + name);
}

}  // namespace

LinkedGroup::LinkedGroup(const ds_plugin_transport_table& transport, const CommOptions& options)
    : transport_(transport), rank_(options.rank), size_(options.size), timeout_ms_(options.timeout_ms) {
  if (transport_.open(rank_, size_, &link_) != 0) {
    raise(DS_ERROR_COMM, "rank {} cannot join over {}: {}", rank_, transport_.name,
          transport_.message(nullptr));
  }
  auto ranks = static_cast<size_t>(size_);
  intents_.resize(ranks);
  stage_.resize(ranks * kStagePart);
  sends_.resize(ranks);
  receives_.resize(ranks);
  arrived_.resize(ranks);
  beats_.resize(ranks);
  patience_.resize(ranks);
  try {
    find_neighbours();
  } catch (...) {
    transport_.close(link_);
    throw;
  }
}

LinkedGroup::~LinkedGroup() { transport_.close(link_); }

void LinkedGroup::find_neighbours() {
  std::vector<uint64_t> hosts(static_cast<size_t>(size_));
  uint64_t own = host_identity();
  hosts[static_cast<size_t>(rank_)] = own;
  begin("join", "", sizeof own, "");
  swap([&](size_t) { return part(&own, sizeof own); }, [&](size_t r) { return part(&hosts[r], sizeof own); });
  local_size_ = static_cast<int>(std::count(hosts.begin(), hosts.end(), own));
  local_rank_ = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank_, own));
}

void LinkedGroup::begin(std::string_view operation, std::string_view detail, uint64_t bytes,
                        std::string_view label) {
  intent_.set(sequence_++, operation, detail, bytes, label);
  check_abort();
  swap([&](size_t) { return part(&intent_, sizeof intent_); },
       [&](size_t r) { return part(&intents_[r], sizeof intents_[r]); });
  for (int r = 0; r < size_; ++r) {
    if (r == rank_) continue;
    std::string why = intents_differ(rank_, intent_, r, intents_[static_cast<size_t>(r)]);
    if (!why.empty()) fail(why);
  }
}

void LinkedGroup::swap(const Part& send, const Part& receive) {
  for (size_t r = 0; r < sends_.size(); ++r) {
    bool other = r != static_cast<size_t>(rank_);
    sends_[r] = other ? send(r) : ds_plugin_part{};
    receives_[r] = other ? receive(r) : ds_plugin_part{};
  }
  if (transport_.start(link_, sends_.data(), receives_.data()) != 0) fail(transport_.message(link_));
  wait();
}

void LinkedGroup::wait() {
  looked_ns_ = 0;
  for (int turn = 0;; ++turn) {
    int32_t done = 0;
    if (transport_.poll(link_, &done, arrived_.data(), beats_.data()) != 0) fail(transport_.message(link_));
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
      for (size_t r = 0; r < patience_.size(); ++r) {
        if (arrived_[r] != 0) continue;
        patience_[r].waited_ns += step;
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

void LinkedGroup::look_at(size_t peer) {
  auto r = static_cast<int32_t>(peer);
  if (r == rank_) return;
  if (transport_.has_left(link_, r) != 0) fail(fmt::format("rank {} has left the group", r));
  Patience& patience = patience_[peer];
  if (patience.beats != beats_[peer]) patience = {beats_[peer], 0};
  if (patience.waited_ns / 1'000'000 > timeout_ms_) {
    fail(fmt::format("rank {} has made no progress for {} ms", r, timeout_ms_));
  }
}

void LinkedGroup::all_gather(const void* in, void* out, size_t bytes, std::string_view label) {
  begin("all_gather", "", bytes, label);
  copy(at(out, static_cast<size_t>(rank_) * bytes), in, bytes);
  for (size_t offset = 0; offset < bytes; offset += kMost) {
    size_t n = std::min(kMost, bytes - offset);
    swap([&](size_t) { return part(at(in, offset), n); },
         [&](size_t r) { return part(at(out, r * bytes + offset), n); });
  }
  count("all_gather", static_cast<int64_t>(bytes) * (size_ - 1));
}

void LinkedGroup::sum_stage(const std::byte* own, DType wire, std::byte* out, size_t count) {
  size_t unit = static_cast<size_t>(size_of(wire));
  const void* src[kMaxRanks];
  for (size_t r = 0; r < sends_.size(); ++r) src[r] = stage_.data() + r * count * unit;
  src[rank_] = own;
  tree_sum(src, size_, wire, out, count);
}

void LinkedGroup::reduce_scatter(const void* in, void* out, size_t count_, DType wire,
                                 std::string_view label) {
  size_t unit = static_cast<size_t>(size_of(wire)), most = kStagePart / unit;
  begin("reduce_scatter", dtype_name(wire), count_ * unit, label);
  for (size_t first = 0; first < count_; first += most) {
    size_t n = std::min(most, count_ - first);
    auto place = [&](size_t r) { return at(in, (r * count_ + first) * unit); };
    swap([&](size_t r) { return part(place(r), n * unit); },
         [&](size_t r) { return part(stage_.data() + r * n * unit, n * unit); });
    sum_stage(place(static_cast<size_t>(rank_)), wire, at(out, first * sum_size(wire)), n);
  }
  count("reduce_scatter", static_cast<int64_t>(count_ * unit) * (size_ - 1));
}

// Per chunk: a reduce_scatter, then an all_gather of the sums.
void LinkedGroup::all_reduce(const void* in, void* out, size_t count_, DType wire, std::string_view label) {
  size_t unit = static_cast<size_t>(size_of(wire)), sum = sum_size(wire), ranks = static_cast<size_t>(size_);
  begin("all_reduce", dtype_name(wire), count_ * unit, label);
  size_t most = kStagePart / unit * ranks;
  for (size_t first = 0; first < count_; first += most) {
    size_t n = std::min(most, count_ - first), share = (n + ranks - 1) / ranks;
    auto begin_of = [&](size_t r) { return first + std::min(n, r * share); };
    auto count_of = [&](size_t r) { return begin_of(r + 1) - begin_of(r); };
    auto me = static_cast<size_t>(rank_);
    size_t own = count_of(me) * unit;
    swap([&](size_t r) { return part(at(in, begin_of(r) * unit), count_of(r) * unit); },
         [&](size_t r) { return part(stage_.data() + r * own, own); });
    std::byte* sums = at(out, begin_of(me) * sum);
    sum_stage(at(in, begin_of(me) * unit), wire, sums, count_of(me));
    swap([&](size_t) { return part(sums, count_of(me) * sum); },
         [&](size_t r) { return part(at(out, begin_of(r) * sum), count_of(r) * sum); });
  }
  count("all_reduce", static_cast<int64_t>(count_ * (unit + sum)) * (size_ - 1) / size_);
}

void LinkedGroup::all_to_all(const void* in, void* out, size_t bytes, std::string_view label) {
  begin("all_to_all", "", bytes, label);
  size_t own = static_cast<size_t>(rank_) * bytes;
  copy(at(out, own), at(in, own), bytes);
  for (size_t offset = 0; offset < bytes; offset += kMost) {
    size_t n = std::min(kMost, bytes - offset);
    swap([&](size_t r) { return part(at(in, r * bytes + offset), n); },
         [&](size_t r) { return part(at(out, r * bytes + offset), n); });
  }
  count("all_to_all", static_cast<int64_t>(bytes) * (size_ - 1));
}

void LinkedGroup::broadcast(void* data, size_t bytes, int root, std::string_view label) {
  require(root >= 0 && root < size_, "root must be 0 to {}, got {}", size_ - 1, root);
  begin("broadcast", fmt::format("from {}", root), bytes, label);
  for (size_t offset = 0; offset < bytes; offset += kMost) {
    size_t n = std::min(kMost, bytes - offset);
    swap([&](size_t) { return part(at(data, offset), rank_ == root ? n : 0); },
         [&](size_t r) { return part(at(data, offset), static_cast<int>(r) == root ? n : 0); });
  }
  count("broadcast", rank_ == root ? 0 : static_cast<int64_t>(bytes));
}

// The swap of intents is one.
void LinkedGroup::barrier(std::string_view label) {
  begin("barrier", "", 0, label);
  count("barrier", 0);
}

void LinkedGroup::tick() {
  int64_t now = now_ns();
  if (now - beaten_ns_ < kBeatNs) return;
  beaten_ns_ = now;
  transport_.beat(link_);
}

void LinkedGroup::abort(std::string_view reason) {
  std::lock_guard lock(mutex_);
  if (!ended_.empty()) return;
  ended_ = reason.empty() ? "no reason given" : std::string(reason);
  transport_.abort(link_, ended_.c_str());
}

void LinkedGroup::check_abort() {
  {
    std::lock_guard lock(mutex_);
    if (!ended_.empty()) throw Error(DS_ERROR_COMM, ended_);
  }
  int by = transport_.aborted_by(link_);
  if (by < 0) return;
  raise(DS_ERROR_COMM, "rank {} in {} '{}': the group was ended by rank {}: {}", rank_, intent_.operation,
        intent_.label, by, transport_.message(link_));
}

void LinkedGroup::fail(const std::string& reason) {
  check_abort();  // what ended the group first is the cause
  std::string message =
      fmt::format("rank {} in {} '{}': {}", rank_, intent_.operation, intent_.label, reason);
  abort(message);
  throw Error(DS_ERROR_COMM, message);
}

std::unique_ptr<Communicator> make_linked(const ds_plugin_transport_table& transport,
                                          const CommOptions& options) {
  return std::make_unique<LinkedGroup>(transport, options);
}

}  // namespace ds
