#include "comm/gloo/wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/base/descriptor.h"

namespace ds {
namespace {

struct Header {
  uint32_t size = 0;
  uint32_t error = 0;
};

constexpr size_t kMostError = 4096;
constexpr int kErrorPatienceMs = 1000;

int left_ms(Deadline deadline) {
  auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
}

// False: the time is over.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd ready{fd, events, 0};
    int count = poll(&ready, 1, left_ms(deadline));
    if (count > 0) return true;
    if (count == 0) return false;
    if (errno != EINTR) throw std::runtime_error(std::string("poll: ") + std::strerror(errno));
  }
}

sockaddr_in resolved(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) throw std::runtime_error("host '" + host + "' has no IPv4 address: " + gai_strerror(code));
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  sockaddr_in address{};
  std::memcpy(&address, list->ai_addr, sizeof address);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

Socket stream() {
  Socket socket(above_standard(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!socket.open()) throw std::runtime_error(std::string("socket: ") + std::strerror(errno));
  return socket;
}

template <typename Name>
sockaddr_in end_of(const Socket& socket, Name name) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (name(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error(std::string("a connection has no address: ") + std::strerror(errno));
  return address;
}

std::string dotted(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return text;
}

void send_bytes(int fd, const void* data, size_t size, Deadline deadline) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t put = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) {
      at += put;
      size -= static_cast<size_t>(put);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline)) throw std::runtime_error("a rank takes no message any more");
    } else if (errno != EINTR) {
      throw std::runtime_error(std::string("a rank left while the ranks met: ") + std::strerror(errno));
    }
  }
}

void receive_bytes(int fd, void* data, size_t size, Deadline deadline, const std::string& from) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    ssize_t got = recv(fd, at, size, MSG_DONTWAIT);
    if (got > 0) {
      at += got;
      size -= static_cast<size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(fd, POLLIN, deadline)) throw std::runtime_error(from + " has not answered in time");
    } else if (got == 0 || errno != EINTR) {
      throw std::runtime_error(from + " left while the ranks met");
    }
  }
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket listen_at(const std::string& host, int port) {
  Socket socket = stream();
  int one = 1;  // connections of an earlier job that are closing down do not hold the port
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  bool local = host == "localhost" || host == "127.0.0.1";
  address.sin_addr.s_addr = htonl(local ? INADDR_LOOPBACK : INADDR_ANY);
  if (bind(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      listen(socket.fd(), SOMAXCONN) == 0) {
    return socket;
  }
  std::string why = errno == EADDRINUSE ? "is taken: another job or program listens there"
                                        : std::string("cannot be used: ") + std::strerror(errno);
  throw std::runtime_error("port " + std::to_string(port) + " of this host " + why);
}

int port_of(const Socket& socket) { return ntohs(end_of(socket, getsockname).sin_port); }

Socket connect_to(const std::string& host, int port, Deadline deadline, std::string& why) {
  sockaddr_in address = resolved(host, port);
  Socket socket = stream();
  int code = connect(socket.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  if (code == EINPROGRESS) {
    socklen_t size = sizeof code;
    code = ETIMEDOUT;
    if (wait_for(socket.fd(), POLLOUT, deadline)) getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &code, &size);
  }
  if (code == 0) return socket;
  why = std::strerror(code);
  return {};
}

std::string own_end(const Socket& socket) { return dotted(end_of(socket, getsockname)); }
std::string other_end(const Socket& socket) { return dotted(end_of(socket, getpeername)); }
bool is_loopback(const std::string& address) { return address.rfind("127.", 0) == 0; }

void send_text(const Socket& socket, const std::string& text, Deadline deadline) {
  Header header{static_cast<uint32_t>(text.size()), 0};
  send_bytes(socket.fd(), &header, sizeof header, deadline);
  send_bytes(socket.fd(), text.data(), text.size(), deadline);
}

void send_error(const Socket& socket, const std::string& text) noexcept {
  try {
    Deadline soon = Clock::now() + std::chrono::milliseconds(kErrorPatienceMs);
    Header header{static_cast<uint32_t>(std::min(text.size(), kMostError)), 1};
    send_bytes(socket.fd(), &header, sizeof header, soon);
    send_bytes(socket.fd(), text.data(), header.size, soon);
  } catch (const std::exception&) {  // it has gone, and needs no reason
  }
}

std::string receive_text(const Socket& socket, size_t most, Deadline deadline, const std::string& from) {
  Header header;
  receive_bytes(socket.fd(), &header, sizeof header, deadline, from);
  size_t limit = header.error != 0 ? kMostError : most;
  if (header.size > limit)
    throw std::runtime_error(from + " speaks another language: a message of " + std::to_string(header.size) +
                             " bytes");
  std::string text(header.size, '\0');
  receive_bytes(socket.fd(), text.data(), text.size(), deadline, from);
  if (header.error != 0) throw std::runtime_error(text);
  return text;
}

}  // namespace ds
