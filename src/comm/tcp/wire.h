#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/tcp/deadline.h"
#include "comm/tcp/key.h"

namespace ds {

// A descriptor, closed at its end.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// All below throw std::runtime_error with a line of text. Addresses are texts of IPv4 or IPv6;
// where a host has both, IPv4 comes first.

// Listens at the port (0: any) of one address of this host.
Socket listen_at(const std::string& address, int port);
int port_of(const Socket& socket);
// A connection; none, with the reason in `reason`, when nobody answers.
Socket connect_to(const std::string& address, int port, Deadline deadline, std::string& reason);

// Addresses of both ends of a connection.
std::string own_end(const Socket& socket);
std::string other_end(const Socket& socket);
// "ADDRESS:PORT", "[ADDRESS]:PORT".
std::string place_text(const std::string& address, int port);
// "ADDRESS:PORT to ADDRESS:PORT"
std::string both_ends(const Socket& socket);

// Whether the other end of a connection within this host is a socket of this user: the kernel says
// so.
bool is_of_this_user(const Socket& socket);

// A name that has no address, which it may get.
struct UnknownHost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The addresses of a host's name. Throws UnknownHost.
std::vector<std::string> addresses_of(const std::string& host);
bool is_loopback(const std::string& address);
// What listens at it listens at all addresses of this host.
std::string everywhere();
// Whether this host has the address.
bool is_local(const std::string& address);
// The first address of an interface of this host.
std::string address_of_interface(const std::string& name);

void send_bytes(const Socket& socket, std::string_view bytes, Deadline deadline);
// `from` names the sender in errors.
std::string receive_bytes(const Socket& socket, size_t size, Deadline deadline,
                          const std::string& from);

// A connection whose ends have proved the key to each other: each message carries its number and a
// code under the session key of its direction, so that nobody between them can change, repeat,
// reorder or reflect one.
class Channel {
 public:
  Channel() = default;
  Channel(Socket socket, const Bytes32& send_key, const Bytes32& receive_key)
      : socket_(std::move(socket)), send_key_(send_key), receive_key_(receive_key) {}
  bool open() const { return socket_.open(); }
  const Socket& socket() const { return socket_; }
  Socket take() { return std::move(socket_); }
  // Whether the other end has closed it; it must not be about to say anything.
  bool left() const;

  // A message: text, or an error that the receiver throws.
  void send_text(const std::string& text, Deadline deadline);
  void send_error(const std::string& text) noexcept;
  // The next message, of at most so many bytes.
  std::string receive_text(size_t most, Deadline deadline, const std::string& from);

 private:
  void send_message(const std::string& text, bool error, Deadline deadline);

  Socket socket_;
  Bytes32 send_key_{}, receive_key_{};
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace ds
