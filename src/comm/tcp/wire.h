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

// A file descriptor that the destructor closes.
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

// All functions below throw std::runtime_error with one line of text. Addresses are numeric IPv4 or
// IPv6 addresses as text; if a host has both, IPv4 comes first.

// Listens at a port (0: any free port) of one address of this host.
Socket listen_at(const std::string& address, int port);
int port_of(const Socket& socket);
// Connects to an address. Returns a closed Socket, with the reason in `reason`, if that fails or
// takes longer than the deadline.
Socket connect_to(const std::string& address, int port, Deadline deadline, std::string& reason);

// These return the addresses of this end and of the other end of a connection.
std::string own_end(const Socket& socket);
std::string other_end(const Socket& socket);
// Returns an address with its port: "ADDRESS:PORT" or, for IPv6, "[ADDRESS]:PORT".
std::string place_text(const std::string& address, int port);
// Returns both ends of a connection: "ADDRESS:PORT to ADDRESS:PORT".
std::string both_ends(const Socket& socket);

// Returns whether the other end of a connection within this host is a socket of this user,
// according to the kernel's tables.
bool is_of_this_user(const Socket& socket);

// Thrown for a host name that does not resolve now, but may do so later.
struct UnknownHost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Returns the addresses of a host name. Throws UnknownHost.
std::vector<std::string> addresses_of(const std::string& host);
bool is_loopback(const std::string& address);
// Returns the address that stands for all addresses of this host.
std::string everywhere();
// Returns whether this host has the address.
bool is_local(const std::string& address);
// Returns the first address, other than a link-local IPv6 one, of an interface of this host.
std::string address_of_interface(const std::string& name);

void send_bytes(const Socket& socket, std::string_view bytes, Deadline deadline);
// Receives exactly `size` bytes. `from` names the sender in errors.
std::string receive_bytes(const Socket& socket, size_t size, Deadline deadline,
                          const std::string& from);

// A connection whose ends have proved the key to each other. Each message contains its sequence
// number and a code under the session key of its direction, so that nobody in between can change,
// repeat, reorder or reflect it.
class Channel {
 public:
  Channel() = default;
  Channel(Socket socket, const Bytes32& send_key, const Bytes32& receive_key)
      : socket_(std::move(socket)), send_key_(send_key), receive_key_(receive_key) {}
  bool open() const { return socket_.open(); }
  const Socket& socket() const { return socket_; }
  Socket take() { return std::move(socket_); }
  // Returns whether the other end has closed the connection. Call this only while the other end has
  // nothing to send: unread messages would hide the end.
  bool left() const;

  // These send a message: a text, or an error that receive_text() throws on the other end.
  void send_text(const std::string& text, Deadline deadline);
  void send_error(const std::string& text) noexcept;
  // Returns the next text, of at most `most` bytes, or throws the error that was sent.
  std::string receive_text(size_t most, Deadline deadline, const std::string& from);

 private:
  void send_message(const std::string& text, bool error, Deadline deadline);

  Socket socket_;
  Bytes32 send_key_{}, receive_key_{};
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace ds
