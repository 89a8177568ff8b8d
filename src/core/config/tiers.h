#pragma once
#include "core/config/config.h"

namespace ds {

// Whether the tiers device and host are memories of their own: those of "cpu" are one unless emulate_tiers
// keeps them apart, those of every other device are two.
inline bool separate_tiers(const Config& config) {
  return config.emulate_tiers || config.device != kDevices[0];
}

}  // namespace ds
