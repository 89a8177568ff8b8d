// This file implements the functions of ds_plugin.h for the transport plugin libds_tcp.so, which
// connects ranks over TCP, whatever started them. The functions return codes; exceptions do not
// leave them.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/plugin_entry.h"
#include "comm/tcp/deadline.h"
#include "comm/tcp/meeting_point.h"
#include "comm/tcp/mesh.h"
#include "comm/tcp/peer.h"
#include "comm/tcp/rendezvous.h"
#include "comm/tcp/wire.h"
#include "core/base/descriptor.h"
#include "core/base/start_error.h"

struct ds_plugin_link {
  std::mutex mutex;
  size_t rank = 0;
  // The connections by rank. Entry `rank` is null.
  std::vector<std::unique_ptr<ds::Peer>> peers;
  // The epoll events that are requested for each peer's connection.
  std::vector<uint32_t> watched;
  // The epoll instance for all connections.
  ds::Socket ready;
  // Whether the group has ended, so that no part is moved any longer.
  bool ended = false;
  // The final message that another rank has sent.
  ds::End end;
  // For each rank whose connection stalls, the clause that describes it, as of the last check.
  std::map<size_t, std::string> stalls;
  // The error of the last call or, after open, a warning.
  std::string error;
};

namespace ds::transport {

const char* const kName = "tcp";

namespace {

constexpr std::chrono::milliseconds kLastWords(500), kNap(1);
// The longest time that closing waits while sent bytes still arrive.
constexpr std::chrono::milliseconds kLastParts(30000);
// Additional time to connect after the rendezvous.
constexpr std::chrono::milliseconds kMore(5000);

thread_local std::string open_error;

// Updates the epoll events that are requested for a rank's connection.
void watch(ds_plugin_link& link, size_t rank) {
  const Peer& peer = *link.peers[rank];
  uint32_t events = EPOLLIN;
  if (peer.blocked()) events |= EPOLLOUT;
  if (peer.ended()) events = 0;
  if (link.watched[rank] == events) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = rank;
  const int action = link.watched[rank] == 0 ? EPOLL_CTL_ADD
                     : events == 0           ? EPOLL_CTL_DEL
                                             : EPOLL_CTL_MOD;
  if (epoll_ctl(link.ready.fd(), action, peer.descriptor(), &event) == 0)
    link.watched[rank] = events;
}

// Sends to and receives from all ranks as much as possible without blocking.
void go_on(ds_plugin_link& link) {
  constexpr int kAtOnce = 64;
  epoll_event events[kAtOnce];
  // The connection of a rank that is ahead of this rank remains ready, so the loop ends after as
  // many events as there are connections.
  for (size_t looked = 0; looked < link.peers.size(); looked += kAtOnce) {
    const int count = epoll_wait(link.ready.fd(), events, kAtOnce, 0);
    for (int i = 0; i < count; ++i) {
      const size_t rank = events[i].data.u64;
      link.peers[rank]->go_on();
      watch(link, rank);
    }
    if (count < kAtOnce) return;
  }
}

void connect(ds_plugin_link* link, int rank, int size, const std::string& address,
             int64_t join_ms) {
  Deadline deadline = Clock::now() + patience_of(join_ms);
  Rendezvous meeting(parse_meeting_point(address), rank, size, join_ms);
  PeerMesh mesh(meeting.own_address(), rank, size);
  std::vector<std::string> entries = meeting.gather(mesh.entry());
  std::vector<Socket> sockets = mesh.connect(entries, meeting.meeting_trust(), deadline + kMore);
  for (const std::string* strangers : {&meeting.strangers(), &mesh.strangers()}) {
    if (!strangers->empty()) link->error += (link->error.empty() ? "" : "; ") + *strangers;
  }
  link->ready = Socket(above_standard(epoll_create1(EPOLL_CLOEXEC)));
  if (!link->ready.open())
    throw std::runtime_error(std::string("epoll_create1: ") + std::strerror(errno));
  link->watched.resize(sockets.size());
  for (size_t r = 0; r < sockets.size(); ++r) {
    if (!sockets[r].open()) continue;
    link->peers[r] = std::make_unique<Peer>(std::move(sockets[r]));
    watch(*link, r);
    if (link->watched[r] == 0)
      throw std::runtime_error(std::string("epoll_ctl: ") + std::strerror(errno));
  }
}

}  // namespace

int32_t open_link(const char* address, int32_t rank, int32_t size, int64_t join_ms,
                  ds_plugin_link** out) {
  *out = nullptr;
  try {
    auto link = std::make_unique<ds_plugin_link>();
    link->rank = static_cast<size_t>(rank);
    link->peers.resize(static_cast<size_t>(size));
    if (size > 1) connect(link.get(), rank, size, address, join_ms);
    *out = link.release();
    return 0;
  } catch (const std::exception& error) {
    open_error = text_with_limits(error);
    return 1;
  }
}

// Ends the group: gives up all parts and tells all ranks. A rank that learns of the end forwards it
// to all others, so that they receive the reason before they see that a rank has left.
static void end_group(ds_plugin_link* link, const End& end) {
  if (std::exchange(link->ended, true)) return;
  for (size_t r = 0; r < link->peers.size(); ++r) {
    if (!link->peers[r]) continue;
    link->peers[r]->give_up();
    link->peers[r]->tell(end);
    watch(*link, r);
  }
}

static void end_parts(ds_plugin_link* link) {
  for (auto& peer : link->peers) {
    if (peer) peer->give_up();
  }
}

// Each rank starts with its next neighbour, so that not all ranks send to the same rank at once.
int32_t start(ds_plugin_link* link, const ds_plugin_part* sends, const ds_plugin_part* receives) {
  std::lock_guard lock(link->mutex);
  size_t ranks = link->peers.size();
  link->stalls.clear();
  for (size_t step = 1; step < ranks; ++step) {
    size_t r = (link->rank + step) % ranks;
    link->peers[r]->start(sends[r], receives[r]);
    watch(*link, r);
  }
  return 0;
}

int32_t poll(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* signs) {
  std::lock_guard lock(link->mutex);
  go_on(*link);
  if (link->ended) {
    link->error = "the group has ended";
    return 1;
  }
  bool done = true;
  for (size_t r = 0; r < link->peers.size(); ++r) {
    const Peer* peer = link->peers[r].get();
    arrived[r] = peer == nullptr || peer->done();
    signs[r] = peer == nullptr ? 0 : peer->sign();
    done = done && arrived[r] != 0;
  }
  *out_done = done;
  return 0;
}

// A rank that computes between collectives receives the heartbeats of the others only here.
void beat(ds_plugin_link* link, uint64_t sign) {
  std::lock_guard lock(link->mutex);
  go_on(*link);
  for (size_t r = 0; r < link->peers.size(); ++r) {
    if (!link->peers[r]) continue;
    link->peers[r]->beat(sign);
    watch(*link, r);
  }
}

void abort_group(ds_plugin_link* link, const char* reason) {
  std::lock_guard lock(link->mutex);
  end_group(link, {static_cast<int>(link->rank), *reason != '\0' ? reason : "no reason given"});
}

static std::string first_stall(const ds_plugin_link& link) {
  return link.stalls.empty() ? "" : "; " + link.stalls.begin()->second;
}

int32_t aborted_by(ds_plugin_link* link) {
  std::lock_guard lock(link->mutex);
  go_on(*link);
  for (size_t r = 0; r < link->peers.size() && link->end.rank < 0; ++r) {
    const End* end = link->peers[r] ? link->peers[r]->told() : nullptr;
    if (!end || end->rank == static_cast<int>(link->rank)) continue;
    link->end = *end;
    // The rank that gave up may be waiting for a part that this rank sends over a stalled
    // connection.
    link->end.reason += first_stall(*link);
    end_group(link, *end);
  }
  return link->end.rank;
}

int32_t has_left(ds_plugin_link* link, int32_t rank) {
  std::lock_guard lock(link->mutex);
  auto& peer = link->peers[static_cast<size_t>(rank)];
  return peer != nullptr && peer->ended();
}

uint64_t moved(ds_plugin_link* link, int32_t rank) {
  std::lock_guard lock(link->mutex);
  auto& peer = link->peers[static_cast<size_t>(rank)];
  if (!peer) return 0;
  if (std::string clause = peer->stall(); !clause.empty()) {
    link->stalls[static_cast<size_t>(rank)] = clause;
  } else {
    link->stalls.erase(static_cast<size_t>(rank));
  }
  return peer->moved();
}

const char* stall(ds_plugin_link* link, int32_t rank) {
  std::lock_guard lock(link->mutex);
  auto found = link->stalls.find(static_cast<size_t>(rank));
  return found == link->stalls.end() ? "" : found->second.c_str();
}

const char* message(ds_plugin_link* link) {
  if (link == nullptr) return open_error.c_str();
  return link->end.rank >= 0 ? link->end.reason.c_str() : link->error.c_str();
}

// If a connection is closed while the other host still sends, it is reset, and bytes that have not
// arrived there are lost. So this rank keeps receiving until all bytes that it has sent have
// arrived, but it stops when no more of them arrive for kLastWords, and after kLastParts at most
// (kLastWords if the group has ended).
void close_link(ds_plugin_link* link) {
  if (link == nullptr) return;
  end_parts(link);
  const Deadline last = Clock::now() + (link->ended ? kLastWords : kLastParts);
  int64_t before = INT64_MAX;
  for (Deadline deadline = last; Clock::now() < std::min(deadline, last);
       std::this_thread::sleep_for(kNap)) {
    go_on(*link);
    int64_t left = 0;
    for (auto& peer : link->peers) left += peer ? peer->undelivered() : 0;
    if (left == 0) break;
    if (left < before) deadline = Clock::now() + kLastWords;
    before = left;
  }
  // The connection is shut down explicitly, because a forked child may hold it, too.
  for (auto& peer : link->peers) {
    if (peer) shutdown(peer->descriptor(), SHUT_WR);
  }
  delete link;
}

}  // namespace ds::transport
