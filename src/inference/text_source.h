#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/tokenizer.h"
#include "engine/inference.h"
#include "inference/text_request.h"

namespace ds {

// A run, a checkpoint or a model folder, open to continue a text.
struct TextSource {
  std::unique_ptr<const Tokenizer> tokenizer;  // null when the request is in ids
  std::unique_ptr<InferenceEngine> engine;
  std::vector<int32_t> prompt, ends;
  bool roll = false;  // GenerateOptions::roll
};

// Collective: rank 0 says what `folder` is, and an error of any rank is thrown on all.
TextSource open_source(Communicator& comm, const std::string& folder, const TextRequest& request);

}  // namespace ds
