#pragma once
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace ds {

// A collective, send or receive, with the facts that the comms logger needs to compute bandwidth.
struct Collective {
  // The share of a message that a link carries in a group of W ranks: all of it (once), (W-1)/W of
  // it (shares) or 2 (W-1)/W of it (twice). Bus bandwidth is the message times this share, divided
  // by time.
  enum class Bus { once, shares, twice };
  std::string_view name;
  Bus bus;
  // True if the size that ranks compare is that of one rank's block, although the message consists
  // of the blocks of all ranks.
  bool block;
};

// Returns null if no collective has that name.
const Collective* find_collective(std::string_view name);

// Translates the names in comms_logger.prof_ops, which may be those of DeepSpeed or
// torch.distributed, to ours. Throws DS_ERROR_CONFIG for an unknown name.
std::set<std::string, std::less<>> logged_operations(std::span<const std::string> names);

}  // namespace ds
