// Problem. oneCCL makes a communicator if the caller brings a table that all ranks can read and
// write (ccl::kvs_interface). oneCCL's own table does not listen at loopback addresses, and it may
// wait longer than a rank of libds is allowed to wait when it joins.
//
// Algorithm. A thread of rank 0 listens at the port until every rank has sent its number; early
// ranks wait for the last one. Then it answers `set`, `get` and `end`; the answer to `end` comes
// when all ranks have asked for it. A request is a letter, two lengths, a key and a value. An
// answer is a letter ('+', or '-' before an error), a length and a text.
#include "meeting.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace oneccl {

namespace {

constexpr char kHello = 'h', kSet = 's', kGet = 'g', kEnd = 'e', kYes = '+', kNo = '-';
constexpr uint32_t kLongest = 1 << 20;  // the most bytes of a key or a value
const char* const kGreeting = "ds-oneccl-1";

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }
[[noreturn]] void fail_with(const std::string& what, int code) {
  fail(what + ": " + std::strerror(code));
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

// Returns when the socket is ready for `events`; throws when the deadline has passed.
void await(int fd, short events, Clock::time_point deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    if (poll(&entry, 1, milliseconds_until(deadline)) > 0) return;
    if (Clock::now() >= deadline) fail("no answer in the time for joining");
  }
}

void send_all(int fd, const std::string& text, Clock::time_point deadline) {
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t n = send(fd, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      await(fd, POLLOUT, deadline);
    } else if (errno != EINTR) {
      fail_with("a connection of the meeting broke", errno);
    }
  }
}

std::string receive(int fd, size_t size, Clock::time_point deadline) {
  std::string text(size, '\0');
  for (size_t received = 0; received < size;) {
    const ssize_t n = recv(fd, text.data() + received, size - received, 0);
    if (n > 0) {
      received += static_cast<size_t>(n);
    } else if (n == 0) {
      fail("a rank left the meeting");
    } else if (errno == EAGAIN) {
      await(fd, POLLIN, deadline);
    } else if (errno != EINTR) {
      fail_with("a connection of the meeting broke", errno);
    }
  }
  return text;
}

std::string length_of(const std::string& text) {
  const auto length = static_cast<uint32_t>(text.size());
  std::string bytes(sizeof length, '\0');
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes;
}

uint32_t receive_length(int fd, Clock::time_point deadline) {
  uint32_t length = 0;
  std::memcpy(&length, receive(fd, sizeof length, deadline).data(), sizeof length);
  if (length > kLongest) fail("what came to the meeting is not from a rank");
  return length;
}

void answer(int fd, char kind, const std::string& text, Clock::time_point deadline) {
  send_all(fd, kind + length_of(text) + text, deadline);
}

bool connects(int fd, const addrinfo& to, Clock::time_point deadline) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS) return false;
  await(fd, POLLOUT, deadline);
  socklen_t size = sizeof errno;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &errno, &size) == 0 && errno == 0;
}

// Returns a socket that listens at HOST:PORT, or is connected to it. Throws if HOST:PORT is not an
// address. If the socket cannot listen or connect, the socket has no descriptor and errno is set.
Socket open_at(const std::string& host, const std::string& port, bool listening,
               Clock::time_point deadline) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (int code = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); code != 0)
    fail("'" + host + ":" + port + "' is not an address: " + gai_strerror(code));
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  int error = 0;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    Socket made(socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1;
    setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(made.fd(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (listening ? bind(made.fd(), at->ai_addr, at->ai_addrlen) == 0 && listen(made.fd(), 128) == 0
                  : connects(made.fd(), *at, deadline))
      return made;
    error = errno;
  }
  errno = error;
  return Socket();
}

struct Seat {
  Socket socket;
  bool ended = false;
};

// The table of one meeting.
class Table {
 public:
  Table(Socket door, int size, Clock::time_point deadline)
      : door_(std::move(door)), deadline_(deadline), seats_(static_cast<size_t>(size)) {}

  void run() {
    try {
      while (came_ < seats_.size()) admit();
      // Closes the socket, because the next meeting at this port needs its own.
      door_ = Socket();
      for (Seat& seat : seats_) answer(seat.socket.fd(), kYes, "", deadline_);
      while (ended_ < seats_.size()) answer_one();
      for (Seat& seat : seats_) answer(seat.socket.fd(), kYes, "", deadline_);
    } catch (const std::exception& error) {
      refuse(came_ < seats_.size() ? missing() : error.what());
    }
  }

 private:
  void admit() {
    await(door_.fd(), POLLIN, deadline_);
    Socket caller(accept4(door_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (caller.fd() < 0) return;
    try {
      const auto patience = std::min(deadline_, Clock::now() + std::chrono::seconds(2));
      const std::string hello = receive(caller.fd(), 1, patience);
      const uint32_t sizes[] = {receive_length(caller.fd(), patience),
                                receive_length(caller.fd(), patience)};
      const std::string greeting = receive(caller.fd(), sizes[0], patience);
      if (hello[0] != kHello || greeting != kGreeting) return;
      seat(std::move(caller), receive(caller.fd(), sizes[1], patience));
    } catch (const std::exception&) {  // this connection is not a rank
    }
  }

  void seat(Socket caller, const std::string& place) {
    const auto rank = static_cast<size_t>(std::atoi(place.c_str()));
    const std::string size = std::to_string(seats_.size());
    if (place.substr(place.find('/') + 1) != size || rank >= seats_.size()) {
      answer(caller.fd(), kNo, "rank " + place + " came to a group of " + size, deadline_);
    } else if (seats_[rank].socket.fd() >= 0) {
      answer(caller.fd(), kNo, "another process is rank " + place, deadline_);
    } else {
      seats_[rank].socket = std::move(caller);
      ++came_;
    }
  }

  void answer_one() {
    std::vector<pollfd> entries;
    for (const Seat& seat : seats_)
      entries.push_back({seat.ended ? -1 : seat.socket.fd(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), milliseconds_until(deadline_)) <= 0 &&
        Clock::now() >= deadline_)
      fail("not all ranks have made their communicators in the time for joining");
    for (size_t r = 0; r < seats_.size(); ++r) {
      if (entries[r].revents == 0) continue;
      const int fd = seats_[r].socket.fd();
      const char what = receive(fd, 1, deadline_)[0];
      const uint32_t sizes[] = {receive_length(fd, deadline_), receive_length(fd, deadline_)};
      const std::string key = receive(fd, sizes[0], deadline_),
                        value = receive(fd, sizes[1], deadline_);
      if (what == kEnd) {
        seats_[r].ended = true;
        ++ended_;
      } else if (what == kGet) {
        const auto at = values_.find(key);
        answer(fd, kYes, at == values_.end() ? "" : at->second, deadline_);
      } else {
        values_[key] = value;
        answer(fd, kYes, "", deadline_);
      }
    }
  }

  std::string missing() const {
    std::string ranks;
    for (size_t r = 0; r < seats_.size(); ++r) {
      if (seats_[r].socket.fd() < 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
    }
    return "of " + std::to_string(seats_.size()) +
           " ranks these have not come in the time for joining: " + ranks;
  }

  void refuse(const std::string& reason) {
    for (Seat& seat : seats_) {
      try {
        if (seat.socket.fd() >= 0) answer(seat.socket.fd(), kNo, reason, deadline_);
      } catch (const std::exception&) {  // the rank has left
      }
    }
  }

  Socket door_;
  Clock::time_point deadline_;
  std::vector<Seat> seats_;  // by rank
  size_t came_ = 0, ended_ = 0;
  std::map<std::string, std::string> values_;
};

}  // namespace

Socket::Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Meeting::Meeting(const std::string& address, int rank, int size, Clock::time_point deadline)
    : deadline_(deadline) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon),
              port = colon == std::string::npos ? "" : address.substr(colon + 1);
  if (address.empty()) {
    const char *master = std::getenv("MASTER_ADDR"), *at = std::getenv("MASTER_PORT");
    host = master ? master : "";
    port = at ? at : "";
  }
  if (host.empty() || port.empty())
    fail("an address must be HOST:PORT, or MASTER_ADDR and MASTER_PORT set; got '" + address + "'");
  if (rank == 0) {
    Socket door = open_at(host, port, true, deadline);
    if (door.fd() < 0) fail_with("rank 0 cannot listen at " + host + ":" + port, errno);
    table_ = std::jthread(
        [table = std::make_shared<Table>(std::move(door), size, deadline)] { table->run(); });
  }
  while (socket_.fd() < 0) {
    socket_ = open_at(host, port, false, deadline);
    if (socket_.fd() >= 0) break;
    if (Clock::now() >= deadline_)
      fail_with("rank 0 cannot be reached at " + host + ":" + port, errno);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ask(kHello, kGreeting, std::to_string(rank) + "/" + std::to_string(size));
}

// The answer may come from rank 0 a moment after the deadline, with the reason.
std::string Meeting::ask(char what, const std::string& key, const std::string& value) {
  const auto deadline = deadline_ + std::chrono::seconds(2);
  send_all(socket_.fd(), what + length_of(key) + length_of(value) + key + value, deadline);
  const std::string kind = receive(socket_.fd(), 1, deadline);
  std::string text = receive(socket_.fd(), receive_length(socket_.fd(), deadline), deadline);
  if (kind[0] != kYes) fail(text);
  return text;
}

std::string Meeting::get(const std::string& key) {
  if (Clock::now() >= deadline_)
    fail("not all ranks have made their communicators in the time for joining");
  return ask(kGet, key, "");
}

void Meeting::set(const std::string& key, const std::string& value) { ask(kSet, key, value); }

void Meeting::end() { ask(kEnd, "", ""); }

}  // namespace oneccl
