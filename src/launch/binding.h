#pragma once
#include <string>
#include <vector>

#include "machine/host_topology.h"

namespace ds {

// Which CPUs a rank may use: all that the launcher may, a part of the cores of its own, or those of
// the memory nodes (NUMA) that are its part.
enum class Binding { none, cores, nodes };

// "none", "cores" or "numa", and back; the latter throws std::invalid_argument.
std::string binding_name(Binding binding);
Binding binding_of(const std::string& name);

struct BoundCpus {
  std::vector<int> cpus;        // empty: as the launcher's
  int sharer = 0, sharers = 1;  // the ranks of the host with the same CPUs, and this one among them
};

// The part of rank `local_rank` of `local_size` on a host. Parts are as even as whole cores or
// nodes allow, and lie in order: ranks with neighbouring numbers are near each other. Where there
// are more ranks than cores or nodes, several share one. Throws std::runtime_error where the host's
// topology is not known.
BoundCpus bound_cpus(const HostTopology& host, Binding binding, int local_rank, int local_size);

// As the variables of a rank, DS_CPU_RANK and DS_CPU_RANKS: the engine divides its CPUs among those
// that share them.
std::vector<std::string> variables_of(const BoundCpus& bound);

}  // namespace ds
