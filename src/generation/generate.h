#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/generation.h"
#include "generation/sampler.h"

namespace ds {

// How far and by which rule a text is continued.
struct GenerationOptions {
  // The largest number of new tokens.
  int64_t tokens = 0;
  SamplingOptions sampling;
  // Tokens that end the text. The token that ends it is returned, too.
  std::vector<int32_t> ends;
  // Whether a text may grow beyond Generation::positions(). When the caches are full, the last half
  // of the text that they hold is fed again from position 0. Without `roll`, a request for a longer
  // text is refused.
  bool roll = false;
};

// Continues `prompt` and returns the new tokens. Feeds the prompt in chunks, then token by token
// over the caches. Collective: all ranks pass the same arguments and get the same tokens. `each`
// [nullable] is called with every new token as it is chosen. The text ends if it returns false,
// which it must do on all ranks at the same token.
std::vector<int32_t> generate(Generation& generation, std::span<const int32_t> prompt,
                              const GenerationOptions& options,
                              const std::function<bool(int32_t)>& each = {});

}  // namespace ds
