#include "launch/port.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <system_error>

namespace ds {
namespace {

// Binds a socket to the port (0: any free port), closes it and returns the port. Throws
// std::system_error.
int bound_port(int port) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t size = sizeof address;
  // With SO_REUSEADDR, closing connections do not block the port.
  int one = 1;
  bool good = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
              bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
              getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  int error = errno;
  if (fd >= 0) close(fd);
  if (!good) throw std::system_error(error, std::generic_category(), fmt::format("port {}", port));
  return ntohs(address.sin_port);
}

}  // namespace

int free_port() { return bound_port(0); }

void require_free_port(int port) {
  try {
    bound_port(port);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::address_in_use) throw;
    throw std::invalid_argument(fmt::format(
        "--master-port: port {} is taken on this host; name another, or none for a free one",
        port));
  }
}

}  // namespace ds
