#include "comm/groups.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>

#include "comm/comm_counts.h"
#include "comm/exchange.h"
#include "comm/flight.h"
#include "comm/link_group.h"
#include "core/base/error.h"

namespace ds {

namespace {

constexpr const char* kAllRanks = "all ranks";

std::string name_of(int ranks, int stride) { return fmt::format("groups {}x{}", ranks, stride); }

}  // namespace

// A rank sends 0 if its local rank is not its rank modulo the local size; all ranks then count as
// one node.
int ranks_per_node(Communicator& comm) {
  if (comm.local_size() == comm.size()) return comm.size();
  int32_t local = comm.local_size();
  int32_t mine = comm.local_rank() == comm.rank() % local ? local : 0;
  std::vector<int32_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), sizeof mine, "ranks per node");
  for (int32_t ranks : all) {
    if (ranks == 0 || ranks != all[0]) return comm.size();
  }
  return local;
}

CommGroups::CommGroups(Communicator& world) : world_(world) {}

CommGroups::~CommGroups() = default;

void CommGroups::link(const Device& device) {
  linked_ = &device;
  open_link(world_, kAllRanks);
  for (auto& [key, group] : groups_) open_link(*group, name_of(key.first, key.second));
}

// The device's library has no time-out, so settle() checks on the other ranks while it waits for
// the link to open.
void CommGroups::open_link(Communicator& group, const std::string& name) {
  if (group.size() == 1) return;
  LinkId id{};
  std::unique_ptr<DeviceLink>& link = links_[&group];
  aborting([&] {
    if (group.rank() == 0) id = linked_->make_link_id();
    group.broadcast(id.data(), id.size(), 0, "link " + name);
    link = linked_->open_link(id, group.rank(), group.size());
    settle(group, *link, "link", name);
  });
}

void CommGroups::try_links(Device& device, DeviceQueue& queue) {
  aborting([&] {
    if (DeviceLink* link = link_of(world_)) try_link(world_, device, queue, *link, kAllRanks);
    for (auto& [key, group] : groups_) {
      if (DeviceLink* link = link_of(*group))
        try_link(*group, device, queue, *link, name_of(key.first, key.second));
    }
  });
}

// All groups end together, because a rank that has failed in one of them is lost to the others.
void CommGroups::aborting(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    abort(error.what());
    throw;
  }
}

DeviceLink* CommGroups::link_of(const Communicator& group) const {
  auto it = links_.find(&group);
  return it == links_.end() ? nullptr : it->second.get();
}

void CommGroups::abort(std::string_view reason) {
  world_.abort(reason);
  for (auto& [group, link] : links_) {
    if (link) link->abort();
  }
}

// Two ranks belong to the same group if they are in the same block of ranks * stride consecutive
// ranks and their numbers have the same remainder modulo stride.
void CommGroups::add(int ranks, int stride) {
  require(ranks > 0 && stride > 0 && world_.size() % (ranks * stride) == 0,
          "groups of {} ranks with stride {} must divide {} ranks", ranks, stride, world_.size());
  if (ranks == world_.size() || groups_.contains({ranks, stride})) return;
  int block = world_.rank() / (ranks * stride), place = world_.rank() % stride;
  std::unique_ptr<Communicator>& group = groups_[{ranks, stride}];
  group = world_.split(block * stride + place, world_.rank(), name_of(ranks, stride));
  if (timeout_ms_ > 0) group->set_timeout(timeout_ms_);
  if (linked_) open_link(*group, name_of(ranks, stride));
}

Communicator& CommGroups::of(int ranks, int stride) {
  if (ranks == world_.size()) return world_;
  auto it = groups_.find({ranks, stride});
  ensure(it != groups_.end(), "no group {}x{} was made", ranks, stride);
  return *it->second;
}

void CommGroups::set_timeout(int64_t ms) {
  timeout_ms_ = ms;
  world_.set_timeout(ms);
  for (auto& [key, group] : groups_) group->set_timeout(ms);
}

int64_t CommGroups::overhead_bytes() const {
  int64_t sum = world_.exchange().overhead_bytes() + static_cast<int64_t>(sizeof(FlightRecord));
  for (const auto& [key, group] : groups_) sum += group->exchange().overhead_bytes();
  return sum;
}

std::vector<CommTime> CommGroups::times() {
  std::vector<CommTime> out;
  auto add = [&](Communicator& group) {
    if (!group.logging()) return;
    std::vector<CommTime> own = group.times();
    std::move(own.begin(), own.end(), std::back_inserter(out));
  };
  add(world_);
  for (auto& [key, group] : groups_) add(*group);
  return out;
}

std::map<std::string, CommCount> CommGroups::counts() const {
  std::map<std::string, CommCount> out = world_.counts();
  for (const auto& [key, group] : groups_) {
    for (const auto& [operation, count] : group->counts())
      out[fmt::format("{} {}x{}", operation, key.first, key.second)] = count;
  }
  return out;
}

}  // namespace ds
