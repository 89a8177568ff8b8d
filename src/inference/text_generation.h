#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "core/base/json.h"
#include "inference/sampler.h"

namespace ds {

// What is continued, and how.
struct TextRequest {
  std::string prompt;
  std::vector<int32_t> ids;  // instead of prompt: a text of token numbers, which is continued with numbers
  int64_t tokens = 256;
  SamplingOptions sampling{0.8, 0, 0};
  std::string dtype;        // "f32", "bf16"; "": a run's own, f32 for a model folder
  int threads = 0;          // compute threads a rank; 0: cores / ranks
  int stage = -1;           // ZeRO stage: 3 holds shards; -1: a run's own, 0 for a model folder
  bool ignore_eos = false;  // go on behind a model folder's end of text
};

// {"ids", "tokens", "temperature", "top_k", "seed", "dtype", "threads", "stage", "ignore_eos"}; unknown keys
// and values are DS_ERROR_CONFIG.
TextRequest text_request(const std::string& prompt, const Json& document);

// Continues a text with the newest checkpoint of a run folder, a checkpoint, or a Hugging Face model folder.
// Returns what was added: text, or with ids numbers between blanks. Collective; the same on every rank. piece
// [nullable] sees it part by part, on every rank, as it comes. A run's text may grow beyond its sequence
// (GenerateOptions::roll); a model folder's ends at its eos_token_id and at its positions, beyond which a
// request is refused. DS_ERROR_NOT_FOUND: no complete checkpoint, no model, or a prompt for a folder without
// tokenizer.
std::string generate_text(Communicator& comm, const std::string& folder, const TextRequest& request,
                          const std::function<void(const std::string&)>& piece = {});

// For reading: a NUL, which ends a file of the training text, as a newline; what is no UTF-8 as U+FFFD.
std::string readable(std::string_view bytes);

}  // namespace ds
