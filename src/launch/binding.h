#pragma once
#include <string>
#include <vector>

#include "machine/host_topology.h"

namespace ds {

// The CPUs that a rank may use: all CPUs of the launcher, the CPUs of some cores, or the CPUs of
// some memory nodes (NUMA).
enum class Binding { none, cores, nodes };

// These convert a binding to its name ("none", "cores" or "numa") and back. binding_of() throws
// std::invalid_argument.
std::string binding_name(Binding binding);
Binding binding_of(const std::string& name);

// The CPUs of one rank, and how it shares them.
struct BoundCpus {
  // Numbers of the CPUs; empty: those of the launcher.
  std::vector<int> cpus;
  // `sharers` ranks of the host have the same CPUs; this rank is number `sharer` among them.
  int sharer = 0, sharers = 1;
};

// Returns the CPUs of rank `local_rank` of `local_size` on a host. The cores or nodes are divided
// in order and as evenly as possible, so ranks with neighbouring numbers are near each other. If
// there are more ranks than cores or nodes, several ranks share one. Throws std::runtime_error if
// the host's topology is not known or has no core or node that this process may use.
BoundCpus bound_cpus(const HostTopology& host, Binding binding, int local_rank, int local_size);

// Returns the variables DS_CPU_RANK and DS_CPU_RANKS for a rank, by which the engine divides its
// CPUs among the ranks that share them. Returns no variables if the rank is not bound.
std::vector<std::string> variables_of(const BoundCpus& bound);

}  // namespace ds
