#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/base/tier.h"
#include "engine/state_store.h"
#include "nn/models/hf.h"

namespace ds {

struct VerifyRequest {
  int stage = 0;
  Tier tier = Tier::device;  // of states, and in stage 3 of parameters
  bool f32 = true, bf16 = true;
  std::vector<std::string> kinds;  // those of verify_kinds() to run; empty: all that are recorded
  std::string device = "cpu";      // as the key `device` of a configuration
  std::string nvme_path = ".";     // folder of the scratch file of tier nvme
  int threads = 0;                 // compute threads a rank; 0: cores / ranks
};

// {"stage", "tier": "device"|"cpu"|"nvme", "device", "dtype": "f32"|"bf16"|"both", "kinds",
// "nvme_path", "threads"}; unknown keys and values are DS_ERROR_CONFIG.
VerifyRequest verify_request(const Json& document);

// "logits", "loss", "grad", "adamw", "accum", "sgd", "final_params", "greedy", "bf16",
// "bf16_accum".
const std::vector<std::string>& verify_kinds();

// What is verified: a graph of any batch shape, and its weights.
struct VerifySubject {
  std::function<HfModel(int64_t bound, int64_t seq)>
      build;  // with an input mask where batches hide tokens
  // Puts the weights into an engine: by load_weights, which takes a folder, or by writes.
  // Collective.
  std::function<void(StateStore&, const std::function<void(const std::string&)>& load_weights)>
      load;
  std::map<std::string, std::string> stored =
      {};  // names of tensors in files, and the parameters they are

  // The parameter that the record calls `name`: by its own name, or by that of its tensor in the
  // files.
  const std::string& param(const std::string& name) const;
};

}  // namespace ds
