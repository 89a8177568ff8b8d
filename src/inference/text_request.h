#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "inference/sampler.h"

namespace ds {

// What is continued, and how.
struct TextRequest {
  std::string prompt;
  std::vector<int32_t>
      ids;  // instead of prompt: a text of token numbers, which is continued with numbers
  int64_t tokens = 256;
  SamplingOptions sampling{0.8, 0, 0};
  std::string dtype;  // "f32", "bf16", "f16"; "": a run's own, f32 for a model folder
  int threads = 0;    // compute threads a rank; 0: cores / ranks
  int stage = -1;     // ZeRO stage: 3 holds shards; -1: a run's own, 0 for a model folder
  std::string device =
      "cpu";  // as the key `device` of a configuration; a run's own is not its checkpoint's
  bool ignore_eos = false;  // go on behind a model folder's end of text
};

// {"ids", "tokens", "temperature", "top_k", "seed", "dtype", "threads", "stage", "device",
// "ignore_eos"}; unknown keys and values are DS_ERROR_CONFIG.
TextRequest text_request(const std::string& prompt, const Json& document);

}  // namespace ds
