#pragma once

namespace ds {

// A TCP port that nobody on this host listens on now. Throws std::system_error.
int free_port();

// Throws std::invalid_argument when a program of this host holds the port.
void require_free_port(int port);

}  // namespace ds
