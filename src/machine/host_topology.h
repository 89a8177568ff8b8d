#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ds {

// The memory nodes, cores, GPUs and network cards of this machine, and which of them are near each
// other. CPUs have the numbers of sched_setaffinity().
struct HostTopology {
  // A core, with those of its CPUs that this process may use.
  struct Core {
    std::vector<int> cpus;
    // The nearest memory node, as an index into `nodes`.
    int node = 0;
  };
  // A memory node, with its number in the system and its size.
  struct Node {
    int number = 0;
    int64_t bytes = 0;
    std::vector<int> cpus;
  };
  // A GPU or a network card.
  struct Device {
    // The name, such as "eth0", "mlx5_0" or "GPU 10de:2335".
    std::string name;
    // The address on the PCI bus, such as "0000:3b:00.0".
    std::string address;
    // The nearest memory nodes, as indices into `nodes`.
    std::vector<int> nodes;
  };
  // Two GPUs that are linked directly.
  struct Link {
    // The addresses of the two GPUs on the PCI bus.
    std::string first, second;
    // Bandwidth in MB/s, as hwloc reports it.
    int64_t bandwidth = 0;
  };

  // The reason why the topology is not known, or "" if it is.
  std::string absent;
  std::vector<Node> nodes;
  std::vector<Core> cores;
  std::vector<Device> gpus, networks;
  std::vector<Link> links;
};

// Returns the topology of this machine as hwloc sees it; the library (libhwloc.so.15) is opened at
// run time. This takes some milliseconds; with `devices`, hwloc loads its plugins, which may take
// tens of milliseconds. CPUs that this process may not use are left out. If the environment
// variable HWLOC_SYNTHETIC or HWLOC_XMLFILE is set, hwloc describes another machine instead.
HostTopology host_topology(bool devices);

}  // namespace ds
