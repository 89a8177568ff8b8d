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

// A run, a checkpoint or a model folder, opened to continue a text.
struct TextSource {
  // The tokenizer, or null if the request has ids.
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<InferenceEngine> engine;
  // The tokens to continue, and the tokens that end the text (GenerateOptions::ends).
  std::vector<int32_t> prompt, ends;
  // Whether the text may outgrow the caches (GenerateOptions::roll).
  bool roll = false;
};

// Opens `folder` to continue a text. Collective: rank 0 determines what the folder is, and an error
// of any rank is thrown on all.
TextSource open_source(Communicator& comm, const std::string& folder, const TextRequest& request);

}  // namespace ds
