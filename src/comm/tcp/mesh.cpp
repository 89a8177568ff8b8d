#include "comm/tcp/mesh.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/tcp/meeting_point.h"

namespace ds {
namespace {

constexpr int kLookMs = 50;
constexpr std::chrono::milliseconds kRetry{20};

// The form of an entry: where a rank listens, in a fixed size.
struct Place {
  char address[48] = {};
  int32_t port = 0;
};

Place place_of(const std::string& entry) {
  Place place;
  if (entry.size() == sizeof place) std::memcpy(&place, entry.data(), sizeof place);
  place.address[sizeof place.address - 1] = '\0';
  return place;
}

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

// TCP_NODELAY sends small parts at once. Routers and firewalls may drop connections that are idle
// for minutes, as in a long forward pass, so the other options have the kernel send keep-alive
// packets.
void set_options(const Socket& socket) {
  struct Option {
    int level, name, value;
    const char* text;
  };
  constexpr Option kOptions[] = {{IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"},
                                 {SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"},
                                 {IPPROTO_TCP, TCP_KEEPIDLE, 30, "TCP_KEEPIDLE"},
                                 {IPPROTO_TCP, TCP_KEEPINTVL, 10, "TCP_KEEPINTVL"},
                                 {IPPROTO_TCP, TCP_KEEPCNT, 12, "TCP_KEEPCNT"}};
  for (const Option& option : kOptions) {
    if (setsockopt(socket.fd(), option.level, option.name, &option.value, sizeof option.value) != 0)
      throw std::runtime_error(std::string(option.text) + ": " + std::strerror(errno));
  }
}

}  // namespace

// Ranks without a key connect over the loopback, to which GLOO_SOCKET_IFNAME does not apply.
PeerMesh::PeerMesh(const std::string& address, int rank, int size) : rank_(rank), size_(size) {
  std::string interface = is_loopback(address) ? "" : chosen_interface();
  listener_ = listen_at(interface.empty() ? address : address_of_interface(interface), 0);
}

std::string PeerMesh::entry() const {
  Place place;
  std::string address = own_end(listener_);
  std::memcpy(place.address, address.data(), std::min(address.size(), sizeof place.address - 1));
  place.port = port_of(listener_);
  return {reinterpret_cast<const char*>(&place), sizeof place};
}

// A call may come too early, or strangers may crowd it out, so it is repeated until the deadline.
Socket PeerMesh::called(int peer, const std::string& entry, const Trust& trust, Deadline deadline) {
  Place place = place_of(entry);
  Hello hello;
  hello.purpose = Purpose::mesh;
  hello.from = rank_;
  hello.to = peer;
  hello.size = size_;
  Failure failure;
  for (;; std::this_thread::sleep_for(kRetry)) {
    std::optional<Channel> channel =
        call(place.address, place.port, trust, hello, deadline, failure);
    if (channel) return channel->take();
    if (Clock::now() > deadline)
      throw std::runtime_error("no connection with " + name_of(peer) + ": " + failure.reason);
  }
}

// If a rank calls again, the last call is used, because the rank has given up the previous one.
void PeerMesh::await_calls(const Trust& trust, std::vector<Socket>& proved, Deadline deadline) {
  Door door(std::move(listener_), trust, rank_, size_);
  auto missing = [&] {
    for (int r = rank_ + 1; r < size_; ++r) {
      if (!proved[static_cast<size_t>(r)].open()) return r;
    }
    return -1;
  };
  for (int r = missing(); r >= 0; r = missing()) {
    strangers_ = door.about_strangers();
    if (Clock::now() > deadline)
      throw std::runtime_error("no connection with " + name_of(r) + ": it has not called" +
                               (strangers_.empty() ? "" : "; ") + strangers_);
    for (Door::Arrival& arrival : door.serve(kLookMs)) {
      const Hello& hello = arrival.hello;
      if (hello.purpose != Purpose::mesh || hello.from <= rank_ || hello.from >= size_ ||
          hello.size != size_)
        continue;
      proved[static_cast<size_t>(hello.from)] = arrival.channel.take();
    }
  }
  strangers_ = door.about_strangers();
}

// Ranks call only lower ranks, so there is one connection for each pair. A rank accepts calls only
// after its own calls have been answered; the kernel queues calls that come earlier.
std::vector<Socket> PeerMesh::connect(const std::vector<std::string>& entries, const Trust& trust,
                                      Deadline deadline) {
  std::vector<Socket> proved(static_cast<size_t>(size_));
  for (int r = 0; r < rank_; ++r) {
    auto peer = static_cast<size_t>(r);
    proved[peer] = called(r, entries[peer], trust, deadline);
  }
  await_calls(trust, proved, deadline);
  for (const Socket& socket : proved) {
    if (socket.open()) set_options(socket);
  }
  return proved;
}

}  // namespace ds
