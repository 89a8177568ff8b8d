#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "inference/sampler.h"

namespace ds {

// The text to continue, and how.
struct TextRequest {
  std::string prompt;
  // Given instead of `prompt`: the text as token ids. It is continued with ids.
  std::vector<int32_t> ids;
  int64_t tokens = 256;
  SamplingOptions sampling{0.8, 0, 0};
  // The compute type: "f32", "bf16" or "f16"; "": a run's own, f32 for a model folder.
  std::string dtype;
  // Compute threads for each rank; 0: cores / ranks.
  int threads = 0;
  // The ZeRO stage, where 3 partitions the parameters; -1: a run's own, 0 for a model folder.
  int stage = -1;
  // The key `device` of a configuration. It need not be the device on which the run was trained.
  std::string device = "cpu";
  // Text continues after the token by which a model folder ends a text.
  bool ignore_eos = false;
};

// Reads the options {"ids", "tokens", "temperature", "top_k", "seed", "dtype", "threads", "stage",
// "device", "ignore_eos"}. Throws DS_ERROR_CONFIG for unknown keys and invalid values.
TextRequest text_request(const std::string& prompt, const Json& document);

}  // namespace ds
