#include "comm/gloo/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "core/base/descriptor.h"

namespace ds {
namespace {

constexpr char kMagic[8] = "dsgloo1";
constexpr size_t kMostJob = 87;
constexpr size_t kMostGuests = 256;  // strangers and ranks that have not said who they are
constexpr size_t kMostAddress = 64;
constexpr size_t kMostEntries = size_t{1} << 20;
constexpr int kLookMs = 50;
constexpr std::chrono::milliseconds kRetry{20};
constexpr std::chrono::milliseconds kLonger{2000};  // the others wait longer than rank 0, which says why

// How a rank introduces itself.
struct Hello {
  char magic[sizeof kMagic] = {};
  int32_t rank = 0, size = 0;
  char job[kMostJob + 1] = {};
};

std::string number(int value) { return std::to_string(value); }

Deadline in_ms(int64_t ms) { return Clock::now() + patience_of(ms); }

}  // namespace

Rendezvous::Rendezvous(const MeetingPoint& point, int rank, int size, int64_t join_ms)
    : point_(point), rank_(rank), size_(size), join_ms_(join_ms), deadline_(in_ms(join_ms)) {
  if (point_.job.size() > kMostJob)
    throw std::runtime_error("a job's name has at most " + std::to_string(kMostJob) + " characters, got '" +
                             point_.job + "'");
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

template <typename Work>
void Rendezvous::tell_failures(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    for (const Socket& socket : ranks_) {
      if (socket.open()) send_error(socket, error.what());
    }
    throw;
  }
}

void Rendezvous::receive_all() {
  Socket door = listen_at(point_.host, point_.port);
  publish(point_, port_of(door));
  struct Withdrawal {
    const MeetingPoint& point;
    ~Withdrawal() { withdraw(point); }
  } withdrawal{point_};
  std::vector<Guest> guests;
  auto seated = [&] { return std::count_if(ranks_.begin(), ranks_.end(), [](auto& s) { return s.open(); }); };
  while (seated() + 1 < size_) {
    if (Clock::now() > deadline_)
      throw std::runtime_error(missing() + " did not come to " + text_of(point_) + " within " +
                               std::to_string(join_ms_) + " ms");
    std::vector<pollfd> ready{{door.fd(), POLLIN, 0}};
    for (const Guest& guest : guests) ready.push_back({guest.socket.fd(), POLLIN, 0});
    if (poll(ready.data(), ready.size(), kLookMs) > 0) {
      if (ready[0].revents != 0) admit_one_more(door, guests);
      std::erase_if(guests, [&](Guest& guest) { return seat(guest); });
    }
    look_at_seats();
  }
}

void Rendezvous::admit_one_more(const Socket& door, std::vector<Guest>& guests) {
  Socket socket(above_standard(accept4(door.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
  if (!socket.open()) return;
  if (guests.size() >= kMostGuests) guests.erase(guests.begin());
  guests.push_back({std::move(socket), ""});
}

bool Rendezvous::seat(Guest& guest) {
  Hello hello;
  char part[sizeof hello];
  ssize_t got = recv(guest.socket.fd(), part, sizeof hello - guest.said.size(), MSG_DONTWAIT);
  if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
  if (got == 0) return true;
  guest.said.append(part, static_cast<size_t>(got));
  if (guest.said.size() < sizeof hello) return false;
  std::memcpy(&hello, guest.said.data(), sizeof hello);
  hello.job[kMostJob] = '\0';
  std::string at = "at " + text_of(point_);
  if (std::memcmp(hello.magic, kMagic, sizeof kMagic) != 0) {
    send_error(guest.socket, at + " ranks of another version of libds meet");
  } else if (point_.job != hello.job) {
    send_error(guest.socket,
               at + " job '" + point_.job + "' meets, this is a rank of job '" + hello.job + "'");
  } else if (hello.size != size_) {
    std::string why = "rank " + number(hello.rank) + " is one of " + number(hello.size) +
                      " ranks, rank 0 one of " + number(size_);
    send_error(guest.socket, why);
    throw std::runtime_error(why);
  } else if (hello.rank < 0 || hello.rank >= size_) {
    send_error(guest.socket, at + " " + number(size_) + " ranks meet, 0 to " + number(size_ - 1) +
                                 ", this is rank " + number(hello.rank));
  } else if (hello.rank == 0 || ranks_[static_cast<size_t>(hello.rank)].open()) {
    send_error(guest.socket,
               at + " rank " + number(hello.rank) + " of " + number(size_) + " is there already");
  } else {
    ranks_[static_cast<size_t>(hello.rank)] = std::move(guest.socket);
  }
  return true;
}

// A rank that has come says nothing more until all are there.
void Rendezvous::look_at_seats() {
  for (size_t r = 1; r < ranks_.size(); ++r) {
    char byte;
    if (ranks_[r].open() && recv(ranks_[r].fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
      throw std::runtime_error("rank " + std::to_string(r) + " left while the ranks met");
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

// Rank 0 is reached where a rank of another host has reached it. A rank that came over the loopback shares
// its host.
void Rendezvous::give_addresses() {
  for (const Socket& socket : ranks_) {
    if (socket.open() && (own_address_.empty() || is_loopback(own_address_))) own_address_ = own_end(socket);
  }
  for (const Socket& socket : ranks_) {
    if (!socket.open()) continue;
    std::string seen = other_end(socket);
    send_text(socket, is_loopback(seen) ? own_address_ : seen, deadline_ + kLonger);
  }
}

void Rendezvous::come() {
  Hello hello;
  std::memcpy(hello.magic, kMagic, sizeof kMagic);
  hello.rank = rank_;
  hello.size = size_;
  std::memcpy(hello.job, point_.job.data(), point_.job.size());
  std::string why = "no such file yet";
  Socket socket;
  for (;; std::this_thread::sleep_for(kRetry)) {
    MeetingPoint place = looked_up(point_);
    if (place.port != 0) socket = connect_to(place.host, place.port, deadline_, why);
    if (socket.open()) break;
    if (Clock::now() > deadline_)
      throw std::runtime_error("rank 0 was not at " + text_of(point_) + " within " +
                               std::to_string(join_ms_) + " ms: " + why);
  }
  std::string bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
  if (send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
    throw std::runtime_error("rank 0 left while the ranks met");
  own_address_ = receive_text(socket, kMostAddress, deadline_ + kLonger, "rank 0");
  ranks_.push_back(std::move(socket));
}

std::vector<std::string> Rendezvous::swap(const std::vector<std::string>& to) {
  auto ranks = static_cast<size_t>(size_);
  Deadline deadline = deadline_ + kLonger;
  std::string mine;
  for (const std::string& entry : to) mine += entry;
  size_t each = mine.size() / ranks;
  std::vector<std::string> from(ranks);
  auto column = [&](const std::string& row, size_t r) { return row.substr(r * each, each); };
  if (rank_ != 0) {
    send_text(ranks_[0], mine, deadline);
    std::string row = receive_text(ranks_[0], kMostEntries, deadline + kLonger, "rank 0");
    for (size_t r = 0; r < ranks; ++r) from[r] = column(row, r);
    return from;
  }
  tell_failures([&] {
    std::vector<std::string> rows(ranks);
    rows[0] = mine;
    for (size_t r = 1; r < ranks; ++r) {
      std::string who = "rank " + std::to_string(r);
      rows[r] = receive_text(ranks_[r], kMostEntries, deadline, who);
      if (rows[r].size() != mine.size()) throw std::runtime_error(who + " has another version of Gloo");
    }
    for (size_t r = 1; r < ranks; ++r) {
      std::string row;
      for (const std::string& other : rows) row += column(other, r);
      send_text(ranks_[r], row, deadline);
    }
    for (size_t r = 0; r < ranks; ++r) from[r] = column(rows[r], 0);
  });
  return from;
}

}  // namespace ds
