#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/comm_counts.h"
#include "comm/comm_log.h"
#include "comm/communicator.h"

namespace ds {

// Neighbours that share a machine, where every machine has as many and numbers them in a row; else all ranks.
// Collective.
int ranks_per_node(Communicator& comm);

// All ranks and the even groups that they are split into. One thread at a time.
class CommGroups {
 public:
  explicit CommGroups(Communicator& world) : world_(world) {}
  Communicator& world() { return world_; }

  // Makes the groups of `ranks` ranks whose numbers differ by multiples of `stride`. Collective.
  void add(int ranks, int stride);
  // That of this rank, which was added; all ranks need not be.
  Communicator& of(int ranks, int stride);

  void tick() { world_.tick(); }   // all groups see it
  void set_timeout(int64_t ms);    // also of groups that are added later
  int64_t overhead_bytes() const;  // staging of all groups, the flight record that they share
  // What the log of each has timed; none where it was not started before they were added. Collective.
  std::vector<CommTime> times();
  // Of the world by operation, of groups by "operation ranks x stride".
  std::map<std::string, CommCount> counts() const;

 private:
  Communicator& world_;
  int64_t timeout_ms_ = 0;  // 0: as the group was made
  std::map<std::pair<int, int>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace ds
