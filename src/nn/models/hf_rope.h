#pragma once
#include <cstdint>
#include <string_view>

#include "nn/layers/layers.h"
#include "nn/models/hf_config.h"

namespace ds {

// How a family reads its rope.
struct RopeKeys {
  bool partly = false;  // a part of a head's columns may turn; elsewhere all of them do
  std::string_view theta_key = "rope_theta";
  std::string_view partial_key = "partial_rotary_factor";
  bool longrope_only = false;  // of all scalings; "su" and "yarn" are names of it
};

// rope_scaling when it says anything, else rope_parameters; then the theta and partial keys.
// `width`: of a head.
RopeOptions read_rope(HfConfig& config, int64_t width, const RopeKeys& keys = {});

}  // namespace ds
