#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/comm_counts.h"
#include "comm/comm_log.h"
#include "comm/communicator.h"
#include "core/device/device.h"
#include "core/device/device_link.h"

namespace ds {

// Returns how many ranks share a machine, if every machine has the same number of ranks and their
// numbers are consecutive; otherwise the number of all ranks. Collective.
int ranks_per_node(Communicator& comm);

// The group of all ranks, and the groups of equal size into which it is split. Used by one thread
// at a time, except abort().
class CommGroups {
 public:
  explicit CommGroups(Communicator& world);
  ~CommGroups();
  Communicator& world() { return world_; }

  // Splits all ranks into groups of `ranks` ranks whose numbers are `stride` apart. Collective.
  void add(int ranks, int stride);
  // Returns this rank's group of that shape. It must have been added, unless it is the group of all
  // ranks.
  Communicator& of(int ranks, int stride);

  // Links the devices of the ranks of every group, including groups that are added later, so that
  // the devices' queues perform the collectives (link_group.h). Collective. The device is borrowed
  // until unlink(), which must be called when its queues are idle or after abort().
  void link(const Device& device);
  // Moves bytes over every link to prove that it works (try_link()). `device` is the linked one,
  // and `queue` one of its queues. Collective.
  void try_links(Device& device, DeviceQueue& queue);
  void unlink() { links_.clear(); }
  // Returns the link between the devices of a group's ranks; null if they are not linked.
  DeviceLink* link_of(const Communicator& group) const;
  // Ends all groups on all ranks, and the collectives that queues have not finished. May be called
  // on any thread.
  void abort(std::string_view reason);

  // Marks progress in all groups; see Communicator::tick().
  void tick() { world_.tick(); }
  // Sets the time-out of all groups, including those that are added later.
  void set_timeout(int64_t ms);
  // Returns the bytes of staging memory of all groups and of the flight record that they share.
  int64_t overhead_bytes() const;
  // Returns the times of each group's log. A group that was added before the log was started has no
  // log. Collective.
  std::vector<CommTime> times();
  // Returns the counts of all groups. The key is "OPERATION" for the group of all ranks and
  // "OPERATION RANKSxSTRIDE" for the other groups.
  std::map<std::string, CommCount> counts() const;

 private:
  void open_link(Communicator& group, const std::string& name);
  // Runs body and, if it throws, ends all groups.
  void aborting(const std::function<void()>& body);

  Communicator& world_;
  // Null: the communicators perform the collectives.
  const Device* linked_ = nullptr;
  std::map<const Communicator*, std::unique_ptr<DeviceLink>> links_;
  // 0: each group keeps the time-out with which it was created.
  int64_t timeout_ms_ = 0;
  std::map<std::pair<int, int>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace ds
