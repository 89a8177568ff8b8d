#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "comm/gloo/meeting_point.h"

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

// All below throw std::runtime_error with a line of text.

// Listens for ranks at the port (0: any) of all IPv4 interfaces, or of the loopback alone where the host is
// this one's.
Socket listen_at(const std::string& host, int port);
int port_of(const Socket& socket);
// A connection; none, with the reason in `why`, when nobody answers. Unknown names throw.
Socket connect_to(const std::string& host, int port, Deadline deadline, std::string& why);

// Dotted addresses of both ends of a connection.
std::string own_end(const Socket& socket);
std::string other_end(const Socket& socket);
bool is_loopback(const std::string& address);

// A message: text, or an error that the receiver throws.
void send_text(const Socket& socket, const std::string& text, Deadline deadline);
void send_error(const Socket& socket, const std::string& text) noexcept;
// The next message, of at most so many bytes. `from` names the sender in errors.
std::string receive_text(const Socket& socket, size_t most, Deadline deadline, const std::string& from);

}  // namespace ds
