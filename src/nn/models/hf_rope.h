#pragma once
#include <string_view>

#include "nn/layers/layers.h"
#include "nn/models/hf.h"
#include "nn/models/hf_config.h"

namespace ds {

// How a family reads its rope.
struct RopeKeys {
  double theta = 10000;  // when no key says it
  double partial = 1;    // share of a head's columns that turn
  bool partly = false;   // the family has partial_rotary_factor; others must have 1
  std::string_view theta_key = "rope_theta";
  std::string_view partial_key = "partial_rotary_factor";
  bool longrope_only = false;  // of all scalings; "su" and "yarn" are names of it
  double original = 0;         // of original_max_position_embeddings when absent; 0: what the scaling says
};

struct HfRope {
  Rope rope;
  RopeSpan span;
};

// rope_scaling when it says anything, else rope_parameters; then the theta and partial keys. `width`: of a
// head. Sequences have `seq` tokens, which decides between the factors of longrope and stretches theta of
// dynamic: docs/models.md.
HfRope read_rope(HfConfig& config, int64_t width, int64_t seq, const RopeKeys& keys = {});

}  // namespace ds
