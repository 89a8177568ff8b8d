#pragma once
#include <stdexcept>
#include <string>

#include "cuda/lane/lane.h"
#include "kernels/cuda/kernel.h"

namespace lane {

// A launcher that runs launches on lanes (lane.h), one after the other. Each launch has another
// seed, unless the first seed is 0.
class LaneLauncher final : public ds::cuda::Launcher {
 public:
  explicit LaneLauncher(uint64_t seed) : seed_(seed) {}
  void launch(const ds::cuda::Launch& l) override {
    const Entry* entry = find(l.entry);
    if (!entry) throw std::runtime_error("the lanes have no entry '" + std::string(l.entry) + "'");
    if (entry->args_bytes != l.args_bytes)
      throw std::runtime_error(std::string(l.entry) + ": " + std::to_string(l.args_bytes) +
                               " bytes of arguments, must be " + std::to_string(entry->args_bytes));
    // Limits that every device since sm_80 supports.
    if (l.grid.y > 65535 || l.grid.z > 65535 || l.shared_bytes > 163 * 1024 || l.args_bytes > 4096)
      throw std::runtime_error(std::string(l.entry) + ": a launch that a device refuses: grid [" +
                               std::to_string(l.grid.x) + "," + std::to_string(l.grid.y) + "," +
                               std::to_string(l.grid.z) + "], " + std::to_string(l.shared_bytes) +
                               " bytes shared, " + std::to_string(l.args_bytes) +
                               " bytes of arguments");
    entry->launch(l.args, l.grid, l.block, l.shared_bytes, seed_);
    if (seed_ != 0) ++seed_;
  }

 private:
  uint64_t seed_;
};

}  // namespace lane
