#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ds {

// What lies near what on this machine. CPUs are numbered as by sched_setaffinity, memory nodes as
// by the system.
struct HostTopology {
  struct Core {
    std::vector<int> cpus;
    int node = 0;  // an index into `nodes`
  };
  struct Node {
    int number = 0;
    int64_t bytes = 0;
    std::vector<int> cpus;
  };
  struct Device {
    std::string name;        // "eth0", "mlx5_0", "GPU 10de:2335"
    std::string address;     // on the PCI bus, "0000:3b:00.0"
    std::vector<int> nodes;  // those that are nearest, indices into `nodes`
  };
  // GPUs that are linked directly.
  struct Link {
    std::string first, second;  // addresses
    int64_t bandwidth = 0;      // MB/s
  };

  std::string absent;  // why nothing is known; "" where something is
  std::vector<Node> nodes;
  std::vector<Core> cores;
  std::vector<Device> gpus, networks;
  std::vector<Link> links;
};

// Asks hwloc, which is opened at run time (libhwloc.so.15). Takes some milliseconds; looking for
// devices loads hwloc's plugins and may take tens. CPUs that this process may not use are left out.
// HWLOC_SYNTHETIC and HWLOC_XMLFILE, hwloc's own variables, put another machine in the place of
// this one.
HostTopology host_topology(bool devices);

}  // namespace ds
