#pragma once
#include <cstdint>
#include <string>

#include "core/base/json.h"

namespace ds {

struct ConvertRequest {
  std::string form = "libds";          // or "universal", "fp32"
  std::string tag;                     // of a checkpoint of libds; "": none
  std::string like;                    // of "fp32": as for save_weights
  int64_t file_bytes = 5'000'000'000;  // of "fp32" without "like": as WeightExtras has them
  bool step_tensor =
      false;  // of "universal": the count of steps is a tensor, as torch's optimizers have it
};

// Opens `from` (open_source) and writes it to `to` in another form; returns what was converted.
// What is at `to` already is never overwritten.
Json convert_checkpoint(const std::string& from, const std::string& to,
                        const ConvertRequest& request);

}  // namespace ds
