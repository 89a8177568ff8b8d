#pragma once
#include <fmt/core.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "ds_plugin.h"

namespace ds::cuda {

// An error of this plugin, with a status of ds_plugin.h.
class Failure : public std::runtime_error {
 public:
  Failure(int32_t status, const std::string& text) : std::runtime_error(text), status_(status) {}
  int32_t status() const { return status_; }

 private:
  int32_t status_;
};

// Throws a Failure of status DS_PLUGIN_REFUSED: this machine or library does not support the
// request.
template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> text, Args&&... args) {
  throw Failure(DS_PLUGIN_REFUSED, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace ds::cuda
