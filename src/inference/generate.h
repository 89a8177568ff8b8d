#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/decoding.h"
#include "inference/sampler.h"

namespace ds {

struct GenerateOptions {
  // The largest number of new tokens.
  int64_t tokens = 0;
  SamplingOptions sampling;
  // Tokens that end the text. Such a token is the last one returned.
  std::vector<int32_t> ends;
  // True: a text may grow beyond Decoding::positions. When the caches are full, the last half of
  // the text that they hold is fed again from position 0. False: such a text is refused.
  bool roll = false;
};

// Continues `prompt`: feeds it in chunks, then token by token over the caches. Collective: all
// ranks pass the same arguments and get the same tokens. `each` [nullable] is called with every new
// token as it is chosen; if it returns false, which it must do on all ranks alike, the text ends
// there.
std::vector<int32_t> generate(Decoding& decoding, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<bool(int32_t)>& each = {});

}  // namespace ds
