#include "comm/gloo/mesh.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "comm/gloo/deadline.h"
#include "comm/gloo/hand_over.h"
#include "comm/gloo/key.h"
#include "comm/gloo/meeting_point.h"
#include "core/base/signals.h"

namespace ds {
namespace {

constexpr int kLookMs = 50;
constexpr std::chrono::milliseconds kGlooPatience{
    4000};  // five times that for a connection within this process
constexpr std::chrono::milliseconds kRetry{20};
constexpr int kAboveStandard = 3;  // the least descriptor that is none of the standard ones
constexpr Purpose kLanes[] = {Purpose::parts, Purpose::notes};

struct Place {
  char address[INET_ADDRSTRLEN] = {};
  int32_t port = 0;
};

Place place_of(const std::string& entry) {
  Place place;
  if (entry.size() == sizeof place) std::memcpy(&place, entry.data(), sizeof place);
  place.address[sizeof place.address - 1] = '\0';
  return place;
}

std::string name_of(int rank) { return "rank " + std::to_string(rank); }

Socket copy_of(const Socket& socket) {
  return Socket(socket.open() ? fcntl(socket.fd(), F_DUPFD_CLOEXEC, kAboveStandard) : -1);
}

// The kernel's record of a connection; all zero where there is none.
tcp_info state_of(const Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (!socket.open() || getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
  return info;
}

// Whether data was sent again and again, and the other host's kernel has said nothing for a while: it would,
// even where its process takes nothing.
bool is_undelivered(const Socket& socket) {
  constexpr uint32_t kWhileMs = 500;
  const tcp_info info = state_of(socket);
  return info.tcpi_retransmits > 0 && info.tcpi_last_ack_recv > kWhileMs;
}

}  // namespace

// Without a key the ranks have met over the loopback, which GLOO_SOCKET_IFNAME does not change.
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

Socket PeerMesh::called(int peer, Purpose purpose, const std::string& entry, const Trust& trust,
                        Deadline deadline) {
  Place place = place_of(entry);
  Hello hello;
  hello.purpose = purpose;
  hello.from = rank_;
  hello.to = peer;
  hello.size = size_;
  Failure failure;
  for (;; std::this_thread::sleep_for(kRetry)) {
    std::optional<Channel> channel = call(place.address, place.port, trust, hello, deadline, failure);
    if (channel) return channel->take();
    if (Clock::now() > deadline)
      throw std::runtime_error("no connection with " + name_of(peer) + ": " + failure.reason);
  }
}

// The last one counts where a rank calls again: it has given up the one before.
void PeerMesh::await_calls(const Trust& trust, std::vector<Lanes>& proved, Deadline deadline) {
  Door door(std::move(listener_), trust, rank_);
  auto missing = [&] {
    for (int r = rank_ + 1; r < size_; ++r) {
      for (const Socket& lane : proved[static_cast<size_t>(r)]) {
        if (!lane.open()) return r;
      }
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
      if (hello.from <= rank_ || hello.from >= size_ || hello.size != size_) continue;
      for (size_t lane : {0, 1}) {
        if (hello.purpose == kLanes[lane])
          proved[static_cast<size_t>(hello.from)][lane] = arrival.channel.take();
      }
    }
  }
  strangers_ = door.about_strangers();
}

void PeerMesh::connect(const std::vector<std::string>& entries, const Trust& trust, Deadline deadline) {
  std::vector<Lanes> proved(static_cast<size_t>(size_));
  for (int r = 0; r < rank_; ++r) {
    for (size_t lane : {0, 1}) {
      auto peer = static_cast<size_t>(r);
      proved[peer][lane] = called(r, kLanes[lane], entries[peer], trust, deadline);
    }
  }
  await_calls(trust, proved, deadline);
  for (const Lanes& lanes : proved) seen_.push_back({copy_of(lanes[0]), copy_of(lanes[1])});
  SignalsBlocked blocked(SignalsBlocked::Which::all);  // Gloo starts a thread
  HandOver hand_over;
  for (size_t lane : {0, 1}) {
    contexts_[lane] = hand_over.device()->createContext(rank_, size_);
    contexts_[lane]->setTimeout(kGlooPatience);  // Gloo leaves it undefined
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) hand_over(*contexts_[lane], r, std::move(proved[static_cast<size_t>(r)][lane]));
    }
  }
}

uint64_t PeerMesh::moved(int rank) const {
  const tcp_info info = state_of(seen_[static_cast<size_t>(rank)][0]);
  // Where one packet of many was lost, the others still count.
  return info.tcpi_bytes_acked + info.tcpi_bytes_received + info.tcpi_delivered + info.tcpi_rcv_ooopack;
}

// Parts are large and notes are small. A host that is there acknowledges both, whatever its rank does.
std::string PeerMesh::stall(int rank) const {
  const Lanes& lanes = seen_[static_cast<size_t>(rank)];
  const bool parts = is_undelivered(lanes[0]), notes = is_undelivered(lanes[1]);
  if (!parts && !notes) return "";
  const Socket& lane = lanes[parts ? 0 : 1];
  int bytes = 0;
  if (ioctl(lane.fd(), SIOCOUTQ, &bytes) != 0) return "";
  const std::string text = "of " + std::to_string(bytes) + " bytes from " + both_ends(lane) +
                           " none arrive, though they are sent again and again";
  if (notes) return text + ": the way between these addresses is cut";
  return text +
         ": small messages pass and large ones do not, as where something between has a smaller MTU than "
         "both "
         "ends (ping -M do -s 1472 ADDRESS tells; ip link set IF mtu N)";
}

void PeerMesh::cut(int rank) {
  Socket seen = std::move(seen_[static_cast<size_t>(rank)][0]);
  if (seen.open()) shutdown(seen.fd(), SHUT_RDWR);
}

}  // namespace ds
