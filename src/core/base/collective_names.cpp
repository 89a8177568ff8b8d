#include "core/base/collective_names.h"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.h"

namespace ds {
namespace {

using Bus = Collective::Bus;

// Each row gives the name, the share of the message that a link carries, and whether the size that
// ranks compare is that of one block.
constexpr Collective kCollectives[] = {
    {"all_gather", Bus::shares, true},
    {"all_gather_coalesced", Bus::shares, true},
    {"all_gather_v", Bus::shares, false},
    {"all_reduce", Bus::twice, false},
    {"all_reduce_coalesced", Bus::twice, false},
    {"all_to_all", Bus::shares, true},
    {"all_to_all_v", Bus::once, false},
    {"barrier", Bus::once, false},
    {"broadcast", Bus::once, false},
    {"broadcast_coalesced", Bus::once, false},
    {"gather", Bus::shares, true},
    {"receive", Bus::once, false},
    {"reduce", Bus::once, false},
    {"reduce_scatter", Bus::shares, true},
    {"reduce_scatter_coalesced", Bus::shares, true},
    {"reduce_scatter_v", Bus::shares, false},
    {"scatter", Bus::shares, true},
    {"send", Bus::once, false},
};

// Names under which DeepSpeed and torch.distributed log the same collectives.
struct Alias {
  std::string_view theirs, ours;
};
constexpr Alias kAliases[] = {{"all_gather_into_tensor", "all_gather"},
                              {"all_gather_base", "all_gather"},
                              {"reduce_scatter_tensor", "reduce_scatter"},
                              {"reduce_scatter_fn", "reduce_scatter"},
                              {"all_to_all_single", "all_to_all"},
                              {"inference_all_reduce", "all_reduce"},
                              {"monitored_barrier", "barrier"},
                              {"isend", "send"},
                              {"recv", "receive"},
                              {"irecv", "receive"}};

}  // namespace

const Collective* find_collective(std::string_view name) {
  for (const Collective& collective : kCollectives) {
    if (collective.name == name) return &collective;
  }
  return nullptr;
}

std::set<std::string, std::less<>> logged_operations(std::span<const std::string> names) {
  std::set<std::string, std::less<>> out;
  for (const std::string& given : names) {
    std::string name = given;
    for (const Alias& alias : kAliases) {
      if (alias.theirs == given) name = alias.ours;
    }
    if (!find_collective(name)) {
      std::string known;
      for (const Collective& collective : kCollectives)
        known += fmt::format(" {}", collective.name);
      raise(DS_ERROR_CONFIG, "{}: '{}' is not one of{}", KeyName("comms_logger.prof_ops"), given,
            known);
    }
    out.insert(std::move(name));
  }
  return out;
}

}  // namespace ds
