#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/decoding.h"
#include "inference/sampler.h"

namespace ds {

struct GenerateOptions {
  int64_t tokens = 0;  // new ones, at most
  SamplingOptions sampling;
  std::vector<int32_t> ends;  // tokens that end the text; one of them is its last token then
  // A text may grow beyond Decoding::positions: when the caches are full, the last half of what
  // they hold is fed again from place 0. Otherwise such a text is refused.
  bool roll = false;
};

// Continues `prompt`: the whole of it in chunks, then token by token over the caches. Collective:
// all ranks pass the same arguments and get the same tokens. each [nullable] sees every new token
// as it is drawn; false, on all ranks, ends the text there.
std::vector<int32_t> generate(Decoding& decoding, std::span<const int32_t> prompt,
                              const GenerateOptions& options,
                              const std::function<bool(int32_t)>& each = {});

}  // namespace ds
