#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "generation/sampler.h"
#include "nn/adapter_keys.h"

namespace ds {

// The text to continue, and the options of its continuation.
struct GenerationRequest {
  std::string prompt;
  // The text as token ids, in place of `prompt`. The result then also consists of ids.
  std::vector<int32_t> ids;
  // The largest number of new tokens.
  int64_t tokens = 256;
  SamplingOptions sampling{0.8, 0, 0};
  // The compute type: "f32", "bf16" or "f16". "" selects the type of the run, or f32 for a model
  // folder.
  std::string dtype;
  // The number of compute threads of each rank. 0 divides the cores among the ranks.
  int threads = 0;
  // The ZeRO stage; at stage 3 parameters are partitioned. -1 selects the stage of the run, or 0
  // for a model folder.
  int stage = -1;
  // The device, as in the key `device` of a configuration. It may differ from the device on which
  // the run was trained.
  std::string device = "cpu";
  // The name of the adapter with which the text is continued: one of the run or of `adapters`, or
  // "base" for none. "" selects the one that the run trains, or the only one of `adapters`.
  std::string adapter;
  // Adapters on a model folder.
  std::vector<NamedFolder> adapters;
  // The model folder of a run with an adapter, if it has moved since; "" selects that of the run.
  std::string base;
  // Whether the text continues after the tokens with which the model folder ends texts.
  bool ignore_eos = false;
};

// Reads the options {"ids", "tokens", "temperature", "top_k", "seed", "dtype", "threads", "stage",
// "device", "adapter", "adapters", "base",
// "ignore_eos"}. Throws DS_ERROR_CONFIG for unknown keys and invalid values.
GenerationRequest generation_request(const std::string& prompt, const Json& document);

}  // namespace ds
