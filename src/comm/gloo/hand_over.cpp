#include "comm/gloo/hand_over.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gloo/transport/pair.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/descriptor.h"

namespace ds {
namespace {

constexpr const char* kNobodyConnects = "127.255.255.255";
constexpr const char* kLoopback = "127.0.0.1";

[[noreturn]] void failed(const char* call) {
  throw std::runtime_error(std::string(call) + ": " + std::strerror(errno));
}

gloo::transport::tcp::attr unreachable() {
  gloo::transport::tcp::attr where;
  where.ai_family = AF_INET;
  where.ai_socktype = SOCK_STREAM | SOCK_CLOEXEC;
  where.ai_protocol = 0;
  where.ai_addr = {};
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, kNobodyConnects, &address.sin_addr);
  std::memcpy(&where.ai_addr, &address, sizeof address);
  where.ai_addrlen = sizeof address;
  return where;
}

// In Gloo's form of an address: a sockaddr_storage and a number that TCP pairs do not use.
std::vector<char> gloo_address(const sockaddr_in& address, size_t size) {
  std::vector<char> bytes(size, '\0');
  std::memcpy(bytes.data(), &address, sizeof address);
  return bytes;
}

bool is_connected_to(int fd, const sockaddr_in& address) {
  sockaddr_in peer{};
  socklen_t size = sizeof peer;
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && size == sizeof peer &&
         peer.sin_family == AF_INET && peer.sin_port == address.sin_port &&
         peer.sin_addr.s_addr == address.sin_addr.s_addr;
}

// The descriptor of this process that is connected to the address. The numbers are tried, as a container may
// have no /proc. The kernel gives the lowest that is free, so a limit of a thousand million is not counted
// through.
int descriptor_to(const sockaddr_in& address) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) failed("getrlimit");
  const int most = static_cast<int>(std::min<rlim_t>(limit.rlim_max, 1 << 20));
  for (int fd = 0; fd < most; ++fd) {
    if (is_connected_to(fd, address)) return fd;
  }
  throw std::runtime_error("Gloo has made no connection");
}

// Small parts go at once. What lies between hosts forgets connections on which nothing moves for minutes, as
// in a long forward pass, so the kernel moves something.
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
      failed(option.text);
  }
}

// Two processes may be given one free port for their pairs, of which only one may listen then.
gloo::transport::Pair& made_pair(gloo::transport::Context& context, int rank) {
  for (int tries = 1;; ++tries) {
    try {
      return *context.createPair(rank);
    } catch (const std::exception&) {
      if (tries == 5) throw;
    }
  }
}

}  // namespace

HandOver::HandOver()
    : device_(std::make_shared<gloo::transport::tcp::Device>(unreachable())),
      due_(above_standard(eventfd(1, EFD_CLOEXEC))) {
  if (!due_.open()) failed("eventfd");
  device_->registerDescriptor(due_.fd(), EPOLLIN, &always_due_);
}

HandOver::~HandOver() { device_->unregisterDescriptor(due_.fd(), &always_due_); }

void HandOver::operator()(gloo::transport::Context& context, int rank, Socket proved) {
  Socket listener = listen_at(kLoopback, 0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) failed("getsockname");
  gloo::transport::Pair& pair = made_pair(context, rank);
  pair.connect(gloo_address(address, pair.address().bytes().size()));  // it connects: its address is above
  set_options(proved);
  auto& handler = dynamic_cast<gloo::transport::tcp::Handler&>(pair);
  int fd = descriptor_to(address);
  device_->unregisterDescriptor(fd, &handler);
  if (dup3(proved.fd(), fd, O_CLOEXEC) < 0) failed("dup3");
  device_->registerDescriptor(fd, EPOLLIN, &handler);
}

}  // namespace ds
