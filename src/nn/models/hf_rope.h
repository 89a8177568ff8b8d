#pragma once
#include <cstdint>
#include <string_view>

#include "nn/layers/layers.h"
#include "nn/models/hf_config.h"

namespace ds {

// Names and limits of a family's rope keys.
struct RopeKeys {
  // Whether only a part of a head's columns may be rotated; other families rotate all of them.
  bool partly = false;
  std::string_view theta_key = "rope_theta";
  std::string_view partial_key = "partial_rotary_factor";
  // Whether longrope is the only scaling, which may then also be named "su" or "yarn".
  bool longrope_only = false;
};

// Reads the options of rope: from rope_scaling if it has members, otherwise from rope_parameters;
// and then from the keys for theta and for the partial factor. `width` is the number of columns of
// a head.
RopeOptions read_rope(HfConfig& config, int64_t width, const RopeKeys& keys = {});

}  // namespace ds
