#pragma once
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace ds {

// Whether a collective, send or receive has this name in logs.
bool is_collective(std::string_view name);

// Names that comms_logger.prof_ops may have, DeepSpeed's made ours. DS_ERROR_CONFIG for one that there is
// not.
std::set<std::string, std::less<>> logged_operations(std::span<const std::string> names);

}  // namespace ds
