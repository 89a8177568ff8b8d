// This file implements the part of ds_env_report about NUMA nodes, GPUs and networks. If the
// topology is unknown, the report gives the reason.
#include "api/env_topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace ds {
namespace {

// Returns the system's numbers of the nodes with these indices.
std::vector<int> numbers(const HostTopology& host, const std::vector<int>& nodes) {
  std::vector<int> out;
  for (int node : nodes) out.push_back(host.nodes[static_cast<size_t>(node)].number);
  return out;
}

// Returns one line for each device, with the nodes nearest to it.
std::string devices_text(const HostTopology& host, const std::string& name,
                         const std::vector<HostTopology::Device>& devices) {
  std::string out;
  for (const HostTopology::Device& device : devices) {
    bool everywhere = device.nodes.size() == host.nodes.size();
    std::string near =
        everywhere ? std::string("as near to every node")
                   : fmt::format("near node {}", fmt::join(numbers(host, device.nodes), ", "));
    out += fmt::format("{:<18}{} at {}, {}\n", out.empty() ? name : "", device.name, device.address,
                       near);
  }
  return out;
}

Json devices_json(const HostTopology& host, const std::vector<HostTopology::Device>& devices) {
  Json::Array out;
  for (const HostTopology::Device& device : devices) {
    std::vector<int> near = numbers(host, device.nodes);
    Json one;
    one.set("name", device.name);
    one.set("address", device.address);
    one.set("nodes", Json::Array(near.begin(), near.end()));
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

// The JSON form has all facts; this text form omits the lists of CPUs.
std::string topology_text(const HostTopology& host) {
  if (!host.absent.empty()) return fmt::format("NUMA nodes        not known: {}\n", host.absent);
  std::string out;
  for (size_t i = 0; i < host.nodes.size(); ++i) {
    // A core refers to its node by index, not by the system's number.
    auto cores = std::ranges::count_if(
        host.cores, [&](const auto& core) { return core.node == static_cast<int>(i); });
    const HostTopology::Node& node = host.nodes[i];
    out += fmt::format("{:<18}{}: {} cores, {} CPUs, {} MiB\n", i ? "" : "NUMA nodes", node.number,
                       cores, node.cpus.size(), node.bytes >> 20);
  }
  out += devices_text(host, "GPUs", host.gpus);
  for (const HostTopology::Link& link : host.links)
    out += fmt::format("{:<18}{} and {}, {} MB/s\n", "GPU link", link.first, link.second,
                       link.bandwidth);
  return out + devices_text(host, "networks", host.networks);
}

Json topology_json(const HostTopology& host) {
  Json out{Json::Object()};
  if (!host.absent.empty()) {
    out.set("absent", host.absent);
    return out;
  }
  Json::Array nodes, cores, links;
  for (const HostTopology::Node& node : host.nodes) {
    Json one;
    one.set("number", int64_t{node.number});
    one.set("memory_bytes", node.bytes);
    one.set("cpus", Json::Array(node.cpus.begin(), node.cpus.end()));
    nodes.push_back(std::move(one));
  }
  for (const HostTopology::Core& core : host.cores) {
    Json one;
    one.set("cpus", Json::Array(core.cpus.begin(), core.cpus.end()));
    one.set("node",
            int64_t{host.nodes.empty() ? 0 : host.nodes[static_cast<size_t>(core.node)].number});
    cores.push_back(std::move(one));
  }
  for (const HostTopology::Link& link : host.links) {
    Json one;
    one.set("gpus", Json::Array{link.first, link.second});
    one.set("bandwidth_mb_s", link.bandwidth);
    links.push_back(std::move(one));
  }
  out.set("nodes", std::move(nodes));
  out.set("cores", std::move(cores));
  out.set("gpus", devices_json(host, host.gpus));
  out.set("gpu_links", std::move(links));
  out.set("networks", devices_json(host, host.networks));
  return out;
}

}  // namespace ds
