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

// Neighbours that share a machine, where every machine has as many and numbers them in a row; else
// all ranks. Collective.
int ranks_per_node(Communicator& comm);

// All ranks and the even groups that they are split into. One thread at a time.
class CommGroups {
 public:
  explicit CommGroups(Communicator& world);
  ~CommGroups();
  Communicator& world() { return world_; }

  // Makes the groups of `ranks` ranks whose numbers differ by multiples of `stride`. Collective.
  void add(int ranks, int stride);
  // That of this rank, which was added; all ranks need not be.
  Communicator& of(int ranks, int stride);

  // Links the devices of the ranks of every group, of those that are added later, too, so that
  // their queues make the collectives (link_group.h). Collective. The device is borrowed until
  // unlink(), which comes when its queues are idle or after abort().
  void link(const Device& device);
  // Has every link move bytes (try_link()); device: that which is linked, queue: one of it.
  // Collective.
  void try_links(Device& device, DeviceQueue& queue);
  void unlink() { links_.clear(); }
  // Of a group's ranks; null: they are not linked.
  DeviceLink* link_of(const Communicator& group) const;
  // Ends all groups on all ranks, and what queues hold of their collectives. Any thread.
  void abort(std::string_view reason);

  void tick() { world_.tick(); }   // all groups see it
  void set_timeout(int64_t ms);    // also of groups that are added later
  int64_t overhead_bytes() const;  // staging of all groups, the flight record that they share
  // What the log of each has timed; none where it was not started before they were added.
  // Collective.
  std::vector<CommTime> times();
  // Of the world by operation, of groups by "operation ranks x stride".
  std::map<std::string, CommCount> counts() const;

 private:
  void open_link(Communicator& group, const std::string& name);
  // Ends all groups behind an error of body.
  void aborting(const std::function<void()>& body);

  Communicator& world_;
  const Device* linked_ = nullptr;  // null: collectives are the communicators'
  std::map<const Communicator*, std::unique_ptr<DeviceLink>> links_;
  int64_t timeout_ms_ = 0;  // 0: as the group was made
  std::map<std::pair<int, int>, std::unique_ptr<Communicator>> groups_;
};

}  // namespace ds
