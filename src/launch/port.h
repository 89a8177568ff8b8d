#pragma once

namespace ds {

// Returns a TCP port that no socket on this host uses now. Throws std::system_error.
int free_port();

// Throws std::invalid_argument if a process on this host uses the port, and std::system_error if
// the system refuses the port for another reason.
void require_free_port(int port);

}  // namespace ds
