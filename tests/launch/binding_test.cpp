#include "launch/binding.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace ds {
namespace {

// Returns a host with `nodes` memory nodes of `cores` cores each. Each core has two CPUs, whose
// numbers differ by `nodes * cores`.
HostTopology host_of(int nodes, int cores) {
  HostTopology host;
  for (int node = 0; node < nodes; ++node) {
    host.nodes.push_back({node, 0, {}});
    for (int core = 0; core < cores; ++core) {
      int cpu = node * cores + core;
      host.cores.push_back({{cpu, cpu + nodes * cores}, node});
      host.nodes.back().cpus.insert(host.nodes.back().cpus.end(), {cpu, cpu + nodes * cores});
    }
  }
  return host;
}

using Cpus = std::vector<int>;

TEST(Binding, EveryRankHasItsOwnCores) {
  HostTopology host = host_of(2, 2);
  EXPECT_EQ(bound_cpus(host, Binding::cores, 0, 2).cpus, (Cpus{0, 4, 1, 5}));
  EXPECT_EQ(bound_cpus(host, Binding::cores, 1, 2).cpus, (Cpus{2, 6, 3, 7}));
  // Of 4 cores, ranks 0 and 1 get one each, and rank 2 gets two.
  EXPECT_EQ(bound_cpus(host, Binding::cores, 0, 3).cpus, (Cpus{0, 4}));
  EXPECT_EQ(bound_cpus(host, Binding::cores, 1, 3).cpus, (Cpus{1, 5}));
  EXPECT_EQ(bound_cpus(host, Binding::cores, 2, 3).cpus, (Cpus{2, 6, 3, 7}));
  EXPECT_EQ(bound_cpus(host, Binding::cores, 2, 3).sharers, 1);
}

TEST(Binding, MoreRanksThanCoresShareCores) {
  HostTopology host = host_of(1, 2);
  for (int rank = 0; rank < 6; ++rank) {
    BoundCpus bound = bound_cpus(host, Binding::cores, rank, 6);
    EXPECT_EQ(bound.cpus, (rank < 3 ? Cpus{0, 2} : Cpus{1, 3})) << rank;
    EXPECT_EQ(bound.sharers, 3);
    EXPECT_EQ(bound.sharer, rank % 3);
  }
}

TEST(Binding, NodeBindingGivesEachRankAWholeNode) {
  HostTopology host = host_of(2, 4);
  for (int rank = 0; rank < 4; ++rank) {
    BoundCpus bound = bound_cpus(host, Binding::nodes, rank, 4);
    EXPECT_EQ(bound.cpus, host.nodes[static_cast<size_t>(rank / 2)].cpus) << rank;
    EXPECT_EQ(bound.sharers, 2);
    EXPECT_EQ(bound.sharer, rank % 2);
  }
  EXPECT_EQ(bound_cpus(host, Binding::nodes, 0, 1).cpus.size(), 16u);
}

TEST(Binding, NoRankIsWithoutCpusOnAnyHost) {
  for (int nodes = 1; nodes <= 4; ++nodes) {
    for (int cores = 1; cores <= 5; ++cores) {
      for (int size = 1; size <= 11; ++size) {
        for (Binding binding : {Binding::cores, Binding::nodes}) {
          std::vector<int> used;
          for (int rank = 0; rank < size; ++rank) {
            BoundCpus bound = bound_cpus(host_of(nodes, cores), binding, rank, size);
            ASSERT_FALSE(bound.cpus.empty());
            ASSERT_LT(bound.sharer, bound.sharers);
            if (bound.sharer == 0) used.insert(used.end(), bound.cpus.begin(), bound.cpus.end());
          }
          // Each CPU belongs to one rank, or to the ranks that share it.
          EXPECT_EQ(used.size(), static_cast<size_t>(2 * nodes * cores))
              << nodes << " " << cores << " " << size;
        }
      }
    }
  }
}

TEST(Binding, UnknownBindingsAreRefused) {
  HostTopology host;
  host.absent = "hwloc cannot be opened: libhwloc.so.15";
  EXPECT_THROW(bound_cpus(host, Binding::cores, 0, 1), std::runtime_error);
  EXPECT_TRUE(bound_cpus(host, Binding::none, 0, 1).cpus.empty());
}

}  // namespace
}  // namespace ds
