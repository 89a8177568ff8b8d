#pragma once
#include <cstdint>
#include <string>

namespace ds {

// What a rank shows to its world: the group that was created and all that were split from it.
// Whoever waits for it in one group sees that it works in another.
struct Sign {
  uint32_t work = 0;   // changes with every step of its own
  uint32_t pulse = 0;  // changes while it waits
  int waits_for = -1;  // the rank of the world, -1: none
};

class World {
 public:
  virtual ~World() = default;
  virtual Sign sign(int rank) const = 0;
  // "barrier 'h.3'": what a rank that waits is in; "" where that is not known.
  virtual std::string doing(int rank) const = 0;
};

// How long a peer has stood still: it itself, or the work of it and of all that it waits for, one
// for the other. By this rank's own looks: time in which this rank did not run either (a suspended
// job) does not count.
class Patience {
 public:
  // Another look at a rank of the world that has not come: "", or why it is not waited for any
  // longer.
  std::string look(const World& world, int peer, int64_t now_ns, int64_t timeout_ms);

 private:
  int64_t looked_ns_ = 0;  // 0: never
  uint32_t alive_ = 0;
  uint64_t work_ = 0;
  int64_t still_ns_ = 0, idle_ns_ = 0;
};

}  // namespace ds
