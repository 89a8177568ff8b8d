#include "comm/tcp/wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/descriptor.h"
#include "core/base/file_stream.h"

namespace ds {
namespace {

// Header of a message. The text follows, then the authentication code of header and text.
struct Header {
  uint64_t number = 0;
  uint32_t size = 0;
  uint32_t error = 0;
};

constexpr const char* kEverywhere = "::";
constexpr size_t kMostError = 4096;
constexpr int kErrorPatienceMs = 1000;

int left_ms(Deadline deadline) {
  auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
}

// Waits until the event is ready or the deadline has passed; returns false in the latter case.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd ready{fd, events, 0};
    int count = poll(&ready, 1, left_ms(deadline));
    if (count > 0) return true;
    if (count == 0) return false;
    if (errno != EINTR) throw std::runtime_error(std::string("poll: ") + std::strerror(errno));
  }
}

// An IPv4 or IPv6 address with its port.
struct Name {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr_in& v4() const { return reinterpret_cast<const sockaddr_in&>(storage); }
  const sockaddr_in6& v6() const { return reinterpret_cast<const sockaddr_in6&>(storage); }
  bool is_v4() const { return storage.ss_family == AF_INET; }
  // Whether this is an IPv4 address in the form that a socket of both families reports.
  bool is_mapped() const { return !is_v4() && IN6_IS_ADDR_V4MAPPED(&v6().sin6_addr); }
  int port() const { return ntohs(is_v4() ? v4().sin_port : v6().sin6_port); }
  std::string address() const {
    char text[INET6_ADDRSTRLEN] = {};
    const void* bytes = is_v4()       ? static_cast<const void*>(&v4().sin_addr)
                        : is_mapped() ? static_cast<const void*>(v6().sin6_addr.s6_addr + 12)
                                      : static_cast<const void*>(&v6().sin6_addr);
    inet_ntop(is_v4() || is_mapped() ? AF_INET : AF_INET6, bytes, text, sizeof text);
    return text;
  }
};

Name name_of(const sockaddr* address) {
  Name name;
  name.size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&name.storage, address, name.size);
  return name;
}

// Parses a numeric address; names are not resolved.
Name socket_name(const std::string& text, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &list) != 0)
    throw std::runtime_error("'" + text + "' is not an address");
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  return name_of(list->ai_addr);
}

Socket stream(int family) {
  Socket socket(above_standard(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!socket.open()) throw std::runtime_error(std::string("socket: ") + std::strerror(errno));
  return socket;
}

bool bound(const Socket& socket, Name name) {
  return bind(socket.fd(), name.get(), name.size) == 0;
}

template <typename Ask>
Name end_of(const Socket& socket, Ask ask) {
  Name name;
  if (ask(socket.fd(), name.get(), &name.size) != 0)
    throw std::runtime_error(std::string("a connection has no address: ") + std::strerror(errno));
  return name;
}

std::string bytes_of(const Header& header) {
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

Bytes32 code_of(const Bytes32& key, const Header& header, const std::string& text) {
  return derived(key, "libds tcp message", bytes_of(header) + text);
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Socket listen_at(const std::string& address, int port) {
  Name name = socket_name(address, port);
  Socket socket = stream(name.storage.ss_family);
  int one = 1, none = 0;
  // With SO_REUSEADDR, closing connections of an earlier job do not block the port. It is not set
  // for port 0, because otherwise the kernel may choose a port that another socket uses, too.
  if (port != 0) setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  // The socket listens for IPv4 and IPv6.
  if (address == kEverywhere)
    setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &none, sizeof none);
  if (bound(socket, name) && listen(socket.fd(), SOMAXCONN) == 0) return socket;
  std::string reason = errno == EADDRINUSE
                           ? "is taken: another job or program listens there"
                           : "cannot be used at address " + address + ": " + std::strerror(errno);
  throw std::runtime_error("port " + std::to_string(port) + " of this host " + reason);
}

int port_of(const Socket& socket) { return end_of(socket, getsockname).port(); }

// The socket is non-blocking, so the deadline applies to connecting, too.
Socket connect_to(const std::string& address, int port, Deadline deadline, std::string& reason) {
  Name name = socket_name(address, port);
  Socket socket = stream(name.storage.ss_family);
  int code = connect(socket.fd(), name.get(), name.size) == 0 ? 0 : errno;
  if (code == EINPROGRESS) {
    socklen_t size = sizeof code;
    code = ETIMEDOUT;
    if (wait_for(socket.fd(), POLLOUT, deadline))
      getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &code, &size);
  }
  if (code == 0) return socket;
  reason = std::strerror(code);
  return {};
}

std::string own_end(const Socket& socket) { return end_of(socket, getsockname).address(); }
std::string other_end(const Socket& socket) { return end_of(socket, getpeername).address(); }
std::string both_ends(const Socket& socket) {
  auto text = [](const Name& end) { return place_text(end.address(), end.port()); };
  return text(end_of(socket, getsockname)) + " to " + text(end_of(socket, getpeername));
}

std::string place_text(const std::string& address, int port) {
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

// The state code of an established connection in /proc/net/tcp.
constexpr std::string_view kEstablished = "01";

// A line of /proc/net/tcp has a number, both addresses as HEX:HEX, a state, queues, timers,
// retransmissions, a user id, a time-out and an inode; /proc/net/tcp6 has the same fields with
// longer addresses. A socket that its owner has closed, or that is not accepted yet, has inode 0
// and root's user id.
bool is_of_this_user(const Socket& socket) {
  const Name own = end_of(socket, getsockname), other = end_of(socket, getpeername);
  auto text = [](const Name& name) {
    uint32_t words[4] = {};
    const size_t count = name.is_v4() ? 1 : 4;
    if (name.is_v4()) words[0] = name.v4().sin_addr.s_addr;
    if (!name.is_v4()) std::memcpy(words, &name.v6().sin6_addr, sizeof words);
    std::string hex;
    char digits[16];
    for (size_t i = 0; i < count; ++i) {
      std::snprintf(digits, sizeof digits, "%08X", words[i]);
      hex += digits;
    }
    std::snprintf(digits, sizeof digits, ":%04X", static_cast<unsigned>(name.port()));
    return hex + digits;
  };
  std::string ends = text(other) + " " + text(own);
  InputFile table(own.is_v4() ? "/proc/net/tcp" : "/proc/net/tcp6");
  for (std::string line; std::getline(table, line);) {
    size_t at = line.find(ends);
    if (at == std::string::npos) continue;
    const std::vector<std::string_view> rest =
        ascii_words(std::string_view(line).substr(at + ends.size()));
    if (rest.size() < 7) return false;
    return rest[0] == kEstablished && ascii_number<uid_t>(rest[4]) == geteuid() &&
           ascii_number<uint64_t>(rest[6]).value_or(0) != 0;
  }
  return false;
}

std::vector<std::string> addresses_of(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  int code = getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (code != 0) throw UnknownHost("host '" + host + "' has no address: " + gai_strerror(code));
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  std::vector<std::string> addresses;
  for (int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
      if (one->ai_family == family) addresses.push_back(name_of(one->ai_addr).address());
    }
  }
  return addresses;
}

bool is_loopback(const std::string& address) {
  return address.rfind("127.", 0) == 0 || address == "::1";
}

// An address is local if a socket can be bound to it.
bool is_local(const std::string& address) {
  try {
    Name name = socket_name(address, 0);
    return bound(stream(name.storage.ss_family), name);
  } catch (const std::runtime_error&) {
    // This host does not support the address family.
    return false;
  }
}

std::string everywhere() { return is_local(kEverywhere) ? kEverywhere : "0.0.0.0"; }

std::string address_of_interface(const std::string& name) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    throw std::runtime_error(std::string("getifaddrs: ") + std::strerror(errno));
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
  for (int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || name != one->ifa_name)
        continue;
      const Name found = name_of(one->ifa_addr);
      // A link-local address is valid only with the name of an interface, which differs between
      // hosts.
      const bool of_link = family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&found.v6().sin6_addr);
      if (!of_link) return found.address();
    }
  }
  throw std::runtime_error("GLOO_SOCKET_IFNAME: this host has no interface '" + name +
                           "' with an address");
}

void send_bytes(const Socket& socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    ssize_t put = send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) {
      bytes.remove_prefix(static_cast<size_t>(put));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(socket.fd(), POLLOUT, deadline))
        throw std::runtime_error("a rank has stopped receiving messages");
    } else if (errno != EINTR) {
      throw std::runtime_error(std::string("a rank disconnected while the ranks met: ") +
                               std::strerror(errno));
    }
  }
}

std::string receive_bytes(const Socket& socket, size_t size, Deadline deadline,
                          const std::string& from) {
  std::string text(size, '\0');
  for (size_t at = 0; at < size;) {
    ssize_t got = recv(socket.fd(), text.data() + at, size - at, MSG_DONTWAIT);
    if (got > 0) {
      at += static_cast<size_t>(got);
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for(socket.fd(), POLLIN, deadline))
        throw std::runtime_error(from + " has not answered in time");
    } else if (got == 0 || errno != EINTR) {
      throw std::runtime_error(from + " left while the ranks met");
    }
  }
  return text;
}

bool Channel::left() const {
  char byte;
  ssize_t got = recv(socket_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void Channel::send_message(const std::string& text, bool error, Deadline deadline) {
  Header header{sent_++, static_cast<uint32_t>(text.size()), error ? 1u : 0u};
  std::string bytes = bytes_of(header) + text;
  bytes += view_of(code_of(send_key_, header, text));
  send_bytes(socket_, bytes, deadline);
}

void Channel::send_text(const std::string& text, Deadline deadline) {
  send_message(text, false, deadline);
}

void Channel::send_error(const std::string& text) noexcept {
  try {
    send_message(text.substr(0, kMostError), true,
                 Clock::now() + std::chrono::milliseconds(kErrorPatienceMs));
  } catch (const std::exception&) {
    // The rank has gone, so it does not need the reason.
  }
}

// The sequence number is checked together with the code, so a repeated or reordered message fails
// like a changed one.
std::string Channel::receive_text(size_t most, Deadline deadline, const std::string& from) {
  Header header;
  std::memcpy(&header, receive_bytes(socket_, sizeof header, deadline, from).data(), sizeof header);
  size_t limit = header.error != 0 ? kMostError : most;
  std::string text = header.size > limit ? "" : receive_bytes(socket_, header.size, deadline, from);
  Bytes32 code{};
  if (header.size <= limit)
    std::memcpy(code.data(), receive_bytes(socket_, code.size(), deadline, from).data(),
                code.size());
  if (header.number != received_++ || !same(code, code_of(receive_key_, header, text)))
    throw std::runtime_error("a message of " + from + " was altered in transit");
  if (header.error != 0) throw std::runtime_error(text);
  return text;
}

}  // namespace ds
