#pragma once
#include <cstdint>
#include <string>

#include "comm/communicator.h"
#include "core/base/json.h"
#include "diagnostics/profile_table.h"

namespace ds {

struct ProfileRequest {
  int64_t micro_batch = 0, sequence = 0;  // 0: those of the configuration; without one 4 and 128
  DType dtype = DS_DTYPE_NONE;            // NONE: the configuration's; without one bf16
  int threads = 0;  // compute threads a rank; 0: the configuration's, or cores / ranks
  int steps = 3;    // measured; one more goes before
  bool by_instruction = false;
};

// {"micro_batch", "sequence", "dtype": "f32"|"bf16"|"f16", "threads", "steps", "by":
// "op"|"instruction"}; unknown keys and values are DS_ERROR_CONFIG.
ProfileRequest profile_request(const Json& document);

struct ProfileReport {
  std::string title;   // what ran
  int64_t tokens = 0;  // of a step, over all ranks
  ProfileTable table;  // of this rank
  std::string text() const;
  Json json() const;
};

// Trains a few steps on random tokens with tracing on and says where the time goes. config: a
// training configuration, null for its defaults on the model; model: folder of a Hugging Face
// model, of which only config.json is read (weights are drawn), "" for the configuration's own.
// Collective: all ranks pass equal arguments. The peaks are measured before and after, on all ranks
// at the same time: ranks of one machine share it.
ProfileReport profile(const Json& config, const std::string& model, const ProfileRequest& request,
                      Communicator& comm);

}  // namespace ds
