#include "engine/memory_nodes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/models.h"
#include "support/ranks.h"
#include "zero/policy.h"
#include "zero/zero_plan.h"

namespace ds::test {
namespace {

HostTopology two_nodes() {
  HostTopology host;
  host.nodes = {{0, 0, {0, 1}}, {3, 0, {2, 4}}};
  return host;
}

TEST(MemoryNodes, ARankBelongsToTheNodeOfAllItsCpus) {
  EXPECT_EQ(memory_node_of(two_nodes(), {2, 4}), 3);
  EXPECT_EQ(memory_node_of(two_nodes(), {1}), 0);
  EXPECT_EQ(memory_node_of(two_nodes(), {1, 2}), -1);
  EXPECT_EQ(memory_node_of(two_nodes(), {}), -1);
  HostTopology one = two_nodes();
  one.nodes.pop_back();
  EXPECT_EQ(memory_node_of(one, {1}), -1);
  EXPECT_EQ(memory_node_of({}, {1}), -1);
}

int detected(const std::vector<int>& nodes, int ranks_per_node) {
  int found = -1;
  run_ranks(static_cast<int>(nodes.size()), [&](Communicator& comm) {
    int mine = ranks_per_memory_node(comm, nodes[static_cast<size_t>(comm.rank())], ranks_per_node);
    if (comm.rank() == 0) found = mine;
  });
  return found;
}

TEST(MemoryNodes, AreALevelIfEqualAndConsecutive) {
  EXPECT_EQ(detected({0, 0, 1, 1}, 4), 2);
  // These are two machines.
  EXPECT_EQ(detected({0, 1, 0, 1}, 2), 1);
  EXPECT_EQ(detected({0, 0, 1, 1, 0, 0, 1, 1}, 4), 2);
  // The ranks of a memory node are not consecutive.
  EXPECT_EQ(detected({0, 1, 0, 1}, 4), 0);
  EXPECT_EQ(detected({0, 0, 0, 1}, 4), 0);
  EXPECT_EQ(detected({0, 0, 1, -1}, 4), 0);
  EXPECT_EQ(detected({-1, -1, -1, -1}, 4), 0);
  EXPECT_EQ(detected({0, 0, 0, 0}, 4), 0);
  EXPECT_EQ(detected({0, 0, 0, 1, 1, 1}, 6), 3);
}

TEST(MemoryNodes, AreTheLevelBelowMachines) {
  Config config = make_config(2, 1, 8);
  Machine machine;
  machine.ranks_per_node = 4;
  machine.ranks_per_memory_node = 2;
  Mesh mesh(8);
  using Sizes = std::vector<int64_t>;
  auto sizes = [&] { return make_levels(config, mesh, {8, 1}, machine).sizes(); };
  EXPECT_EQ(sizes(), (Sizes{4, 2}));
  config.levels = "auto";
  EXPECT_EQ(sizes(), (Sizes{2, 2, 2}));
  machine.ranks_per_node = 8;
  EXPECT_EQ(sizes(), (Sizes{2, 4}));
  // A level must be a power of two that divides the ranks.
  machine.ranks_per_memory_node = 3;
  EXPECT_EQ(sizes(), (Sizes{8}));
}

}  // namespace
}  // namespace ds::test
