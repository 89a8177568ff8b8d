#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/tokenizer.h"
#include "generation/generation_engine.h"
#include "generation/generation_request.h"

namespace ds {

// A run, a checkpoint or a model folder, opened to continue a text.
struct GenerationSource {
  // The tokenizer, or null if the request has ids.
  std::unique_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<GenerationEngine> engine;
  // The tokens to continue, and the tokens that end the text (GenerationOptions::ends).
  std::vector<int32_t> prompt, ends;
  // Whether the text may outgrow the caches (GenerationOptions::roll).
  bool roll = false;
};

// Opens `folder` to continue a text. Collective: rank 0 determines what the folder is, and an error
// of any rank is thrown on all.
GenerationSource open_source(Communicator& comm, const std::string& folder,
                             const GenerationRequest& request);

}  // namespace ds
