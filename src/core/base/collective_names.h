#pragma once
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace ds {

// A collective, send or receive by its name in logs.
struct Collective {
  enum class Bus {
    once,
    shares,
    twice
  };  // what a link carries of a message: all, (W-1)/W, 2 (W-1)/W of it
  std::string_view name;
  Bus bus;
  bool block;  // ranks compare one rank's block, the message is those of all
};

// Null: there is none of that name.
const Collective* find_collective(std::string_view name);

// Translates the names in comms_logger.prof_ops, some of them DeepSpeed's, to ours. DS_ERROR_CONFIG
// for an unknown name.
std::set<std::string, std::less<>> logged_operations(std::span<const std::string> names);

}  // namespace ds
