#pragma once
#include <sys/types.h>

#include <chrono>
#include <vector>

namespace ds {

// A process that tells the agents of a job over ssh every few seconds that their launcher is there:
// neither a link that is cut nor a host that is gone ends the connection of an agent by itself. It
// goes on while a terminal has stopped the launcher, and ends with it.
class Pulse {
 public:
  // orders: the launcher's end of each agent's. Throws std::system_error.
  explicit Pulse(const std::vector<int>& orders,
                 std::chrono::milliseconds every = std::chrono::milliseconds(3000));
  ~Pulse();
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

 private:
  pid_t pid_;
};

}  // namespace ds
