#include "launch/binding.h"

#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>

namespace ds {
namespace {

// The cores or nodes [first, last) that belong to a rank.
struct Part {
  int first, last;
};

// Divides `count` cores or nodes evenly and returns the part of one rank. A part has at least one
// core or node, which several ranks may share.
Part part_of(int count, int rank, int size) {
  int first = static_cast<int>(int64_t{rank} * count / size);
  int last = static_cast<int>(int64_t{rank + 1} * count / size);
  return {first, last > first ? last : first + 1};
}

}  // namespace

std::string binding_name(Binding binding) {
  return binding == Binding::cores ? "cores" : binding == Binding::nodes ? "numa" : "none";
}

Binding binding_of(const std::string& name) {
  for (Binding binding : {Binding::none, Binding::cores, Binding::nodes}) {
    if (name == binding_name(binding)) return binding;
  }
  throw std::invalid_argument(fmt::format("must be none, cores or numa, got {}", name));
}

// Cores and nodes are divided in hwloc's order, in which neighbours are near each other.
BoundCpus bound_cpus(const HostTopology& host, Binding binding, int local_rank, int local_size) {
  if (binding == Binding::none) return {};
  if (!host.absent.empty()) throw std::runtime_error(fmt::format("--bind: {}", host.absent));
  const int count =
      static_cast<int>(binding == Binding::cores ? host.cores.size() : host.nodes.size());
  if (count == 0)
    throw std::runtime_error(
        "--bind: hwloc finds no core or memory node that this process may use");
  const Part mine = part_of(count, local_rank, local_size);
  BoundCpus bound;
  for (int i = mine.first; i < mine.last; ++i) {
    const auto at = static_cast<size_t>(i);
    const std::vector<int>& cpus =
        binding == Binding::cores ? host.cores[at].cpus : host.nodes[at].cpus;
    bound.cpus.insert(bound.cpus.end(), cpus.begin(), cpus.end());
  }
  // Ranks share CPUs only if they have exactly the same part.
  bound.sharers = 0;
  for (int rank = 0; rank < local_size; ++rank) {
    const Part other = part_of(count, rank, local_size);
    if (other.first != mine.first || other.last != mine.last) continue;
    if (rank < local_rank) ++bound.sharer;
    ++bound.sharers;
  }
  return bound;
}

std::vector<std::string> variables_of(const BoundCpus& bound) {
  if (bound.cpus.empty()) return {};
  return {fmt::format("DS_CPU_RANK={}", bound.sharer),
          fmt::format("DS_CPU_RANKS={}", bound.sharers)};
}

}  // namespace ds
