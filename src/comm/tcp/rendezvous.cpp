#include "comm/tcp/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <thread>

#include "comm/tcp/deadline.h"
#include "comm/tcp/key.h"

namespace ds {
namespace {

constexpr size_t kMostAddress = 64;
constexpr size_t kMostEntries = size_t{4} << 20;
constexpr int kLookMs = 50;
constexpr std::chrono::milliseconds kRetry{20}, kNameRetry{200};
// Additional time for which the other ranks wait after the deadline, so that rank 0 can tell them
// why it has failed.
constexpr std::chrono::milliseconds kLonger{2000};

std::string number(int value) { return std::to_string(value); }

Deadline in_ms(int64_t ms) { return Clock::now() + patience_of(ms); }

}  // namespace

Rendezvous::Rendezvous(const MeetingPoint& point, int rank, int size, int64_t join_ms)
    : point_(point),
      rank_(rank),
      size_(size),
      join_ms_(join_ms),
      deadline_(in_ms(join_ms)),
      key_(job_key()) {
  if (point_.job.size() > kMostJob)
    throw std::runtime_error("a job's name has at most " + std::to_string(kMostJob) +
                             " characters, got '" + point_.job + "'");
  if (rank_ == 0) {
    ranks_.resize(static_cast<size_t>(size_));
    tell_failures([&] {
      receive_all();
      give_addresses();
    });
  } else {
    come();
  }
}

Rendezvous::~Rendezvous() = default;

// A host name, for example the name of a pod that is not ready yet, may become known only after the
// ranks have started.
template <typename Find>
auto Rendezvous::known(Find find) {
  for (;; std::this_thread::sleep_for(kNameRetry)) {
    try {
      return find();
    } catch (const UnknownHost& error) {
      if (Clock::now() > deadline_)
        throw std::runtime_error(std::string(error.what()) + ", for " + std::to_string(join_ms_) +
                                 " ms");
    }
  }
}

template <typename Work>
void Rendezvous::tell_failures(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    for (Channel& channel : ranks_) {
      if (channel.open()) channel.send_error(error.what());
    }
    throw;
  }
}

// Without a key of the job, other means keep strangers out: ranks that connect to a port must
// belong to this user on this host, and ranks that use a file read a fresh key from it.
void Rendezvous::receive_all() {
  std::string address = known([&] { return listening_address(point_, key_.kind); });
  Socket listener = listen_at(address, point_.port);
  std::optional<std::string> fresh;
  trust_ = {key_.key, key_.kind == JobKey::Kind::missing && point_.file.empty()};
  if (key_.kind == JobKey::Kind::missing && !point_.file.empty()) {
    fresh = hex_of(drawn());
    trust_.key = key_of_text(*fresh);
  }
  Publication publication(point_, address, port_of(listener), fresh);
  Door door(std::move(listener), trust_, rank_, size_);
  auto seated = [&] { return std::ranges::count_if(ranks_, [](auto& r) { return r.open(); }); };
  while (seated() + 1 < size_) {
    strangers_ = door.about_strangers();
    if (Clock::now() > deadline_)
      throw std::runtime_error(missing() + " did not connect to " + text_of(point_) + " within " +
                               std::to_string(join_ms_) + " ms" + (strangers_.empty() ? "" : "; ") +
                               strangers_ + elsewhere(point_));
    std::vector<Door::Arrival> arrivals = door.serve(kLookMs);
    look_at_seats();
    for (Door::Arrival& arrival : arrivals) seat(std::move(arrival));
  }
  strangers_ = door.about_strangers();
}

// A rank is refused if it belongs to another job or if its number is too large or taken; the
// rendezvous then continues. If two ranks disagree on the number of ranks, the rendezvous cannot
// succeed, so it ends.
void Rendezvous::seat(Door::Arrival arrival) {
  const Hello& hello = arrival.hello;
  auto refuse = [&](const std::string& reason) { arrival.channel.send_error(reason); };
  std::string at = "at " + text_of(point_);
  if (hello.purpose != Purpose::meeting || hello.from < 0) return;
  if (point_.job != hello.job)
    return refuse(at + " the ranks of job '" + point_.job +
                  "' meet, but this rank belongs to job '" + hello.job + "'");
  if (hello.size != size_) {
    std::string reason = "rank " + number(hello.from) + " was started as one of " +
                         number(hello.size) + " ranks, rank 0 as one of " + number(size_);
    refuse(reason);
    throw std::runtime_error(reason);
  }
  if (hello.from >= size_)
    return refuse(at + " " + number(size_) + " ranks meet, 0 to " + number(size_ - 1) +
                  ", but this is rank " + number(hello.from));
  Channel& seat = ranks_[static_cast<size_t>(hello.from)];
  if (hello.from == 0 || seat.open())
    return refuse(at + " rank " + number(hello.from) + " of " + number(size_) +
                  " has joined already");
  seat = std::move(arrival.channel);
}

// A connected rank sends nothing more until all ranks have connected. If it has closed the channel,
// it may connect again.
void Rendezvous::look_at_seats() {
  for (Channel& channel : ranks_) {
    if (channel.open() && channel.left()) channel = Channel();
  }
}

std::string Rendezvous::missing() const {
  std::string list;
  int count = 0;
  for (int r = 1; r < size_; ++r) {
    if (ranks_[static_cast<size_t>(r)].open()) continue;
    list += (count++ == 0 ? "" : ", ") + number(r);
  }
  return (count == 1 ? "rank " : "ranks ") + list + " of " + number(size_);
}

// Rank 0's address is the address at which a rank of another host has reached it. A rank that
// connected over the loopback is on rank 0's host, so it gets rank 0's address.
void Rendezvous::give_addresses() {
  for (const Channel& channel : ranks_) {
    if (channel.open() && (own_address_.empty() || is_loopback(own_address_)))
      own_address_ = own_end(channel.socket());
  }
  for (Channel& channel : ranks_) {
    if (!channel.open()) continue;
    std::string seen = other_end(channel.socket());
    channel.send_text(is_loopback(seen) ? own_address_ : seen, deadline_ + kLonger);
  }
}

void Rendezvous::come() {
  Hello hello;
  hello.from = rank_;
  hello.size = size_;
  std::memcpy(hello.job, point_.job.data(), point_.job.size());
  Failure failure;
  std::optional<Channel> found;
  for (;; std::this_thread::sleep_for(kRetry)) {
    std::string reason;
    std::optional<Reach> reach = known([&] { return reach_of(point_, key_, reason); });
    if (!reach) failure.add(reason == kNoFile ? -1 : 0, reason);
    for (size_t i = 0; reach && !found && i < reach->addresses.size(); ++i) {
      trust_ = reach->trust;
      found = call(reach->addresses[i], reach->port, trust_, hello, deadline_, failure);
    }
    if (found) break;
    if (Clock::now() > deadline_)
      throw std::runtime_error("rank 0 was not at " + text_of(point_) + " within " +
                               std::to_string(join_ms_) + " ms: " + failure.reason);
  }
  ranks_.push_back(std::move(*found));
  own_address_ = ranks_[0].receive_text(kMostAddress, deadline_ + kLonger, "rank 0");
}

// The new key is derived from the table of entries, which begins with a fresh nonce and was sent
// only to ranks that had proved the key of the job.
std::vector<std::string> Rendezvous::gather(const std::string& entry) {
  std::vector<std::string> entries;
  Deadline deadline = deadline_ + kLonger;
  std::string table;
  if (rank_ == 0) {
    tell_failures([&] { table = spread(entry); });
  } else {
    ranks_[0].send_text(entry, deadline);
    table = ranks_[0].receive_text(kMostEntries, deadline + kLonger, "rank 0");
  }
  meeting_trust_ = {derived(trust_.key, "libds tcp meeting", table), trust_.same_user};
  for (size_t r = 0; r < static_cast<size_t>(size_); ++r)
    entries.push_back(table.substr(sizeof(Bytes32) + r * entry.size(), entry.size()));
  return entries;
}

// The table that all ranks receive has a nonce, so that no two rendezvous have the same key, and
// the entries by rank.
std::string Rendezvous::spread(const std::string& entry) {
  Deadline deadline = deadline_ + kLonger;
  std::string table = std::string(view_of(drawn())) + entry;
  for (size_t r = 1; r < ranks_.size(); ++r) {
    std::string who = "rank " + std::to_string(r);
    std::string other = ranks_[r].receive_text(kMostEntries, deadline, who);
    if (other.size() != entry.size())
      throw std::runtime_error(who + " runs another version of libds");
    table += other;
  }
  for (size_t r = 1; r < ranks_.size(); ++r) ranks_[r].send_text(table, deadline);
  return table;
}

}  // namespace ds
