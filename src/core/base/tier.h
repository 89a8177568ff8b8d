#pragma once

namespace ds {

// The place where a kind of state lives: device memory, host memory or files.
enum class Tier { device = 0, host = 1, nvme = 2 };
// Returns "device", "host" or "nvme". Configurations spell host "cpu".
const char* tier_name(Tier tier);

}  // namespace ds
