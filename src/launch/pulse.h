#pragma once
#include <sys/types.h>

#include <chrono>
#include <vector>

namespace ds {

// A process that tells the agents of a job over ssh, every few seconds, that their launcher is
// alive. Without this process, an agent would not notice that the connection is cut or that the
// launcher's host has gone. The process continues while the launcher is suspended by its terminal,
// and ends with the launcher.
class Pulse {
 public:
  // `orders` has the launcher's ends of the agents' order streams. Throws std::system_error.
  explicit Pulse(const std::vector<int>& orders,
                 std::chrono::milliseconds every = std::chrono::milliseconds(3000));
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  pid_t pid_;
};

}  // namespace ds
