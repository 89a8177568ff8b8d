#include "machine/host_topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "support/temp_folder.h"

namespace ds {
namespace {

// A replacement of this machine: while it exists, hwloc reads the topology from an environment
// variable.
class OtherMachine {
 public:
  OtherMachine(const char* variable, const std::string& value) : variable_(variable) {
    setenv(variable, value.c_str(), 1);
  }
  ~OtherMachine() { unsetenv(variable_); }
  OtherMachine(const OtherMachine&) = delete;
  OtherMachine& operator=(const OtherMachine&) = delete;

 private:
  const char* variable_;
};

std::string package(int number, const std::string& devices) {
  int bit = 1 << number;
  std::string set = "=\"" + std::to_string(bit) + "\"", n = std::to_string(number);
  std::string sets =
      " cpuset" + set + " complete_cpuset" + set + " nodeset" + set + " complete_nodeset" + set;
  auto object = [&](const char* type, int index, const std::string& rest) {
    return "<object type=\"" + std::string(type) + "\" os_index=\"" + n + "\" gp_index=\"" +
           std::to_string(10 * (number + 1) + index) + "\"" + sets + rest;
  };
  return object("Package", 0, ">") + object("NUMANode", 1, " local_memory=\"4194304\"/>") +
         object("Core", 2, ">") + object("PU", 3, "/>") + "</object>" + devices + "</object>";
}

std::string bridge(int number, const std::string& devices) {
  std::string bus = std::to_string(number);
  return "<object type=\"Bridge\" gp_index=\"" + std::to_string(100 * number) +
         "\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[0" + bus + "-0" + bus + "]\">" +
         devices + "</object>";
}

std::string device(int index, const char* address, const char* kind, const char* part) {
  return "<object type=\"PCIDev\" gp_index=\"" + std::to_string(index) + "\" pci_busid=\"" +
         address + "\" pci_type=\"" + kind +
         " [10de:2335] [10de:1234] a1\" pci_link_speed=\"0.0\"><object type=\"OSDev\" " +
         "gp_index=\"" + std::to_string(index + 1) + "\" name=\"" + part + "\"/></object>";
}

// Returns the XML of a machine with two packages: the first has a GPU and a network card, the
// second a GPU, and the two GPUs are linked.
std::string machine_with_gpus() {
  std::string first = bridge(1, device(110, "0000:01:00.0", "0302", "nvml0\" osdev_type=\"1") +
                                    device(120, "0000:01:01.0", "0207", "mlx5_0\" osdev_type=\"3"));
  std::string second = bridge(2, device(210, "0000:02:00.0", "0302", "nvml1\" osdev_type=\"1"));
  return "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology "
         "version=\"2.0\">\n<object type=\"Machine\" os_index=\"0\" gp_index=\"1\" cpuset=\"3\" "
         "complete_cpuset=\"3\" allowed_cpuset=\"3\" nodeset=\"3\" complete_nodeset=\"3\" "
         "allowed_nodeset=\"3\">" +
         package(0, first) + package(1, second) +
         "</object><distances2 type=\"OSDev\" nbobjs=\"2\" kind=\"9\" name=\"NVLinkBandwidth\" "
         "indexing=\"gp\"><indexes length=\"8\">111 211 </indexes><u64values length=\"28\">1000000 "
         "50000 50000 1000000 </u64values></distances2></topology>\n";
}

bool have_hwloc() { return host_topology(false).absent.empty(); }

TEST(HostTopology, HasTheCpusAllowedToThisProcess) {
  if (!have_hwloc()) GTEST_SKIP() << "hwloc is not installed";
  HostTopology host = host_topology(true);
  ASSERT_FALSE(host.nodes.empty());
  ASSERT_FALSE(host.cores.empty());
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof mine, &mine), 0);
  for (const HostTopology::Core& core : host.cores) {
    ASSERT_LT(static_cast<size_t>(core.node), host.nodes.size());
    for (int cpu : core.cpus) EXPECT_TRUE(CPU_ISSET(cpu, &mine)) << cpu;
  }
  // A process bound to one CPU sees one core.
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(host.cores[0].cpus[0], &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  HostTopology bound = host_topology(false);
  ASSERT_EQ(sched_setaffinity(0, sizeof mine, &mine), 0);
  ASSERT_EQ(bound.cores.size(), 1u);
  EXPECT_EQ(bound.cores[0].cpus, (std::vector<int>{host.cores[0].cpus[0]}));
}

TEST(HostTopology, CoresBelongToNodes) {
  if (!have_hwloc()) GTEST_SKIP() << "hwloc is not installed";
  OtherMachine other("HWLOC_SYNTHETIC", "pack:2 [numa(memory=4GB)] core:3 pu:2");
  HostTopology host = host_topology(false);
  ASSERT_EQ(host.nodes.size(), 2u);
  EXPECT_EQ(host.nodes[1].number, 1);
  EXPECT_EQ(host.nodes[1].bytes, 4000000000);
  EXPECT_EQ(host.nodes[1].cpus, (std::vector<int>{6, 7, 8, 9, 10, 11}));
  ASSERT_EQ(host.cores.size(), 6u);
  EXPECT_EQ(host.cores[2].node, 0);
  EXPECT_EQ(host.cores[3].node, 1);
  EXPECT_EQ(host.cores[4].cpus, (std::vector<int>{8, 9}));
}

TEST(HostTopology, GpusAndNetworksBelongToTheNearestNode) {
  if (!have_hwloc()) GTEST_SKIP() << "hwloc is not installed";
  test::TempFolder folder;
  std::string path = folder / "machine.xml";
  std::ofstream(path) << machine_with_gpus();
  OtherMachine other("HWLOC_XMLFILE", path);
  HostTopology host = host_topology(true);
  ASSERT_EQ(host.gpus.size(), 2u);
  EXPECT_EQ(host.gpus[0].name, "GPU 10de:2335");
  EXPECT_EQ(host.gpus[0].address, "0000:01:00.0");
  EXPECT_EQ(host.gpus[0].nodes, (std::vector<int>{0}));
  EXPECT_EQ(host.gpus[1].nodes, (std::vector<int>{1}));
  ASSERT_EQ(host.networks.size(), 1u);
  EXPECT_EQ(host.networks[0].name, "mlx5_0");
  EXPECT_EQ(host.networks[0].nodes, (std::vector<int>{0}));
  ASSERT_EQ(host.links.size(), 1u);
  EXPECT_EQ(host.links[0].first, "0000:01:00.0");
  EXPECT_EQ(host.links[0].second, "0000:02:00.0");
  EXPECT_EQ(host.links[0].bandwidth, 50000);
}

}  // namespace
}  // namespace ds
