#include "core/base/collective_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/error.h"

namespace ds {
namespace {

constexpr std::string_view kNames[] = {"all_gather",
                                       "all_gather_coalesced",
                                       "all_gather_v",
                                       "all_reduce",
                                       "all_reduce_coalesced",
                                       "all_to_all",
                                       "all_to_all_v",
                                       "barrier",
                                       "broadcast",
                                       "broadcast_coalesced",
                                       "gather",
                                       "receive",
                                       "reduce",
                                       "reduce_scatter",
                                       "reduce_scatter_coalesced",
                                       "reduce_scatter_v",
                                       "scatter",
                                       "send"};

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

bool is_collective(std::string_view name) {
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::set<std::string, std::less<>> logged_operations(std::span<const std::string> names) {
  std::set<std::string, std::less<>> out;
  for (const std::string& given : names) {
    std::string name = given;
    for (const Alias& alias : kAliases) {
      if (alias.theirs == given) name = alias.ours;
    }
    if (!is_collective(name)) {
      raise(DS_ERROR_CONFIG, "{}: '{}' is none of {}", KeyName("comms_logger.prof_ops"), given,
            fmt::join(kNames, " "));
    }
    out.insert(std::move(name));
  }
  return out;
}

}  // namespace ds
