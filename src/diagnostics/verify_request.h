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
  // The tier of states and, in stage 3, of parameters.
  Tier tier = Tier::device;
  bool f32 = true, bf16 = true;
  // The kinds to run, from verify_kinds(). Empty: all that are recorded.
  std::vector<std::string> kinds;
  // The device, as in the key `device` of a configuration.
  std::string device = "cpu";
  // The folder for the scratch file of tier nvme.
  std::string nvme_path = ".";
  // Compute threads of a rank; 0: cores / ranks.
  int threads = 0;
};

// Parses {"stage", "tier": "device"|"cpu"|"nvme", "device", "dtype": "f32"|"bf16"|"both", "kinds",
// "nvme_path", "threads"}. Throws DS_ERROR_CONFIG for unknown keys and invalid values.
VerifyRequest verify_request(const Json& document);

// Returns all kinds: "logits", "loss", "grad", "adamw", "accum", "sgd", "final_params", "greedy",
// "bf16", "bf16_accum".
const std::vector<std::string>& verify_kinds();

// The model to verify: its graph, for any shape of batches, and its weights.
struct VerifySubject {
  // Builds the model for batches of at most `bound` tokens in sequences of `seq` tokens, with an
  // input `mask` if batches hide tokens.
  std::function<HfModel(int64_t bound, int64_t seq)> build;
  // Loads the weights into an engine, by calling load_weights(folder) or by writing to the store.
  // Collective.
  std::function<void(StateStore&, const std::function<void(const std::string&)>& load_weights)>
      load;
  // Maps the name of a tensor in the files to the name of its parameter.
  std::map<std::string, std::string> stored = {};

  // Returns the name of the parameter that the record calls `name`, which is the name of the
  // parameter or the name of its tensor in the files.
  const std::string& param(const std::string& name) const;
};

}  // namespace ds
