#pragma once
#include <cstdint>
#include <string>

namespace ds {

// The heartbeat that a rank shows to its world: the group that was created first and all groups
// that were split from it. By this heartbeat, a rank that waits for another rank in one group can
// see that the other rank works in another group.
struct Sign {
  // Changes whenever the rank makes progress.
  uint32_t work = 0;
  // Changes from time to time while the rank waits.
  uint32_t pulse = 0;
  // The number in the world of the rank that this rank waits for; -1: it does not wait.
  int waits_for = -1;
};

// Access to the heartbeats of all ranks of a world.
class World {
 public:
  virtual ~World() = default;
  virtual Sign sign(int rank) const = 0;
  // Returns the operation in which a rank waits, for example "barrier 'h.3'", or "" if that is not
  // known.
  virtual std::string doing(int rank) const = 0;
};

// A clock that measures how long a peer has shown no heartbeat, and how long no rank of its chain
// has worked. The chain begins with the peer, and each of its ranks waits for the next. Time is
// measured between this rank's checks, and long gaps are cut, so the time in which this rank itself
// did not run, as in a suspended job, does not count.
class Patience {
 public:
  // Checks once more on a rank of the world whose part has not arrived. Returns "" to keep waiting,
  // or the reason why the rank is given up.
  std::string look(const World& world, int peer, int64_t now_ns, int64_t timeout_ms);

 private:
  // Time of the last check; 0: none yet.
  int64_t looked_ns_ = 0;
  // The sum of the peer's work and pulse at the last check, and the hash of its chain's work.
  uint32_t alive_ = 0;
  uint64_t work_ = 0;
  // How long the peer's heartbeat has not changed at all, and how long its chain has not worked.
  int64_t still_ns_ = 0, idle_ns_ = 0;
};

}  // namespace ds
