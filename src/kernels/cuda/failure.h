#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>

namespace ds::cuda {

// An error of this plugin, as a status of ds_plugin.h.
class Failure : public std::runtime_error {
 public:
  Failure(int32_t status, const std::string& text) : std::runtime_error(text), status_(status) {}
  int32_t status() const { return status_; }

 private:
  int32_t status_;
};

}  // namespace ds::cuda
