// The transport plugin libds_gloo.so: ranks connect over TCP, by Gloo, without a launcher of their own kind.
// Everything that Gloo throws ends here.
#include <gloo/common/error.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/gloo/deadline.h"
#include "comm/gloo/meeting_point.h"
#include "comm/gloo/mesh.h"
#include "comm/gloo/peer.h"
#include "comm/gloo/rendezvous.h"
#include "comm/plugin_entry.h"
#include "core/base/descriptor.h"
#include "core/base/signals.h"
#include "core/base/start_error.h"

struct ds_plugin_link {
  std::mutex mutex;
  size_t rank = 0;
  std::unique_ptr<ds::PeerMesh> mesh;
  std::vector<std::unique_ptr<ds::Peer>> peers;  // entry `rank` is empty
  bool ended = false;                            // no part moves any more
  ds::End end;                                   // by another rank
  std::map<size_t, std::string> stalls;          // of parts on their way, by rank, as last seen
  std::string error;                             // of the last call; after open, what is worth a warning
};

namespace ds::transport {

const char* const kName = "gloo";

namespace {

constexpr std::chrono::milliseconds kLastWords(500);
constexpr std::chrono::milliseconds kMore(5000);  // to connect, after the last rank has come in time

thread_local std::string open_error;

void connect(ds_plugin_link* link, int rank, int size, const std::string& address, int64_t join_ms) {
  Deadline deadline = Clock::now() + patience_of(join_ms);
  Rendezvous meeting(parse_meeting_point(address), rank, size, join_ms);
  link->mesh = std::make_unique<PeerMesh>(meeting.own_address(), rank, size);
  std::vector<std::string> entries = meeting.gather(link->mesh->entry());
  link->mesh->connect(entries, meeting.meeting_trust(), deadline + kMore);
  for (const std::string* strangers : {&meeting.strangers(), &link->mesh->strangers()}) {
    if (!strangers->empty()) link->error += (link->error.empty() ? "" : "; ") + *strangers;
  }
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    try {
      link->peers[static_cast<size_t>(r)] = std::make_unique<Peer>(*link->mesh, r);
    } catch (const gloo::Exception&) {  // it would name an address within this host
      throw std::runtime_error("rank " + std::to_string(r) + " left while the ranks met");
    }
  }
}

}  // namespace

int32_t open_link(const char* address, int32_t rank, int32_t size, int64_t join_ms, ds_plugin_link** out) {
  *out = nullptr;
  try {
    auto link = std::make_unique<ds_plugin_link>();
    link->rank = static_cast<size_t>(rank);
    link->peers.resize(static_cast<size_t>(size));
    StandardFilled filled;  // Gloo keeps sockets and an epoll of its own
    if (size > 1) connect(link.get(), rank, size, address, join_ms);
    *out = link.release();
    return 0;
  } catch (const std::exception& error) {
    open_error = text_with_limits(error);
    return 1;
  }
}

// Tells all, and gives parts that are on their way back. Who was told tells the others, too: a reason is
// there before any rank that knew it has left.
static void end_group(ds_plugin_link* link, const End& end) {
  if (std::exchange(link->ended, true)) return;
  SignalsBlocked blocked(SignalsBlocked::Which::all);
  for (auto& peer : link->peers) {
    if (peer) peer->tell(end);
  }
  for (auto& peer : link->peers) {
    if (peer) peer->give_up();
  }
}

int32_t start(ds_plugin_link* link, const ds_plugin_part* sends, const ds_plugin_part* receives) {
  std::lock_guard lock(link->mutex);
  SignalsBlocked blocked(SignalsBlocked::Which::all);
  size_t ranks = link->peers.size();
  link->stalls.clear();
  for (size_t step = 1; step < ranks; ++step) {
    size_t r = (link->rank + step) % ranks;
    link->peers[r]->start(sends[r], receives[r]);
  }
  return 0;
}

int32_t poll(ds_plugin_link* link, int32_t* out_done, uint8_t* arrived, uint64_t* signs) {
  std::lock_guard lock(link->mutex);
  if (link->ended) {
    link->error = "the group has ended";
    return 1;
  }
  bool done = true;
  for (size_t r = 0; r < link->peers.size(); ++r) {
    const Peer* peer = link->peers[r].get();
    arrived[r] = peer == nullptr || (peer->arrived() && peer->gone());
    signs[r] = peer == nullptr ? 0 : peer->sign();
    done = done && arrived[r] != 0;
  }
  *out_done = done;
  return 0;
}

void beat(ds_plugin_link* link, uint64_t sign) {
  std::lock_guard lock(link->mutex);
  SignalsBlocked blocked(SignalsBlocked::Which::all);
  for (auto& peer : link->peers) {
    if (peer) peer->beat(sign);
  }
}

void abort_group(ds_plugin_link* link, const char* reason) {
  std::lock_guard lock(link->mutex);
  end_group(link, {static_cast<int>(link->rank), *reason != '\0' ? reason : "no reason given"});
}

static std::string stall_of(const ds_plugin_link& link, int rank) {
  try {
    return link.mesh->stall(rank);
  } catch (const std::exception&) {  // the connection has ended
    return "";
  }
}

static std::string first_stall(const ds_plugin_link& link) {
  for (const auto& [rank, clause] : link.stalls) {
    if (!clause.empty()) return "; " + clause;
  }
  return "";
}

int32_t aborted_by(ds_plugin_link* link) {
  std::lock_guard lock(link->mutex);
  for (size_t r = 0; r < link->peers.size() && link->end.rank < 0; ++r) {
    const End* end = link->peers[r] ? link->peers[r]->told() : nullptr;
    if (end == nullptr || end->rank == static_cast<int>(link->rank)) continue;
    link->end = *end;
    // Who gave up may be the one that waits for what this rank sends.
    link->end.reason += first_stall(*link);
    end_group(link, *end);
  }
  return link->end.rank;
}

int32_t has_left(ds_plugin_link* link, int32_t rank) {
  std::lock_guard lock(link->mutex);
  auto& peer = link->peers[static_cast<size_t>(rank)];
  return peer != nullptr && peer->lost();
}

uint64_t moved(ds_plugin_link* link, int32_t rank) {
  std::lock_guard lock(link->mutex);
  if (!link->mesh || static_cast<size_t>(rank) == link->rank) return 0;
  link->stalls[static_cast<size_t>(rank)] = stall_of(*link, rank);
  return link->mesh->moved(rank);
}

const char* stall(ds_plugin_link* link, int32_t rank) {
  std::lock_guard lock(link->mutex);
  return link->stalls[static_cast<size_t>(rank)].c_str();
}

const char* message(ds_plugin_link* link) {
  if (link == nullptr) return open_error.c_str();
  return link->end.rank >= 0 ? link->end.reason.c_str() : link->error.c_str();
}

void close_link(ds_plugin_link* link) {
  if (link == nullptr) return;
  {
    SignalsBlocked blocked(SignalsBlocked::Which::all);
    Deadline deadline = Clock::now() + kLastWords;
    for (auto& peer : link->peers) {
      if (peer) peer->linger(deadline);
    }
    link->peers.clear();
    link->mesh.reset();
  }
  delete link;
}

}  // namespace ds::transport
