#pragma once

namespace ds {

// Where a kind of state lives. Order: device memory, host memory, files.
enum class Tier { device = 0, host = 1, nvme = 2 };
const char* tier_name(Tier tier);  // "device", "host", "nvme" (config spelling of host: "cpu")

}  // namespace ds
