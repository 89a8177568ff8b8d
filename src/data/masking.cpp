// Four random words are used for each token: the first decides whether the token is a target, the
// second decides what replaces it, and the last two choose the random token.
#include "data/masking.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/base/error.h"

namespace ds {

// Sorts the special tokens, so that they are found by binary search.
Masking::Masking(MaskingOptions options) : options_(std::move(options)) {
  const MaskingOptions& o = options_;
  require(o.probability > 0 && o.probability <= 1,
          "probability of a target must be in (0, 1], got {}", o.probability);
  require(o.masked >= 0 && o.random >= 0, "shares of targets must not be negative, got {} and {}",
          o.masked, o.random);
  require(o.vocabulary >= 1, "vocabulary must be at least 1, got {}", o.vocabulary);
  std::ranges::sort(options_.special);
}

int64_t Masking::frame() const {
  return static_cast<int64_t>(options_.before.size() + options_.after.size());
}

// Returns the token that the model sees in place of a target.
int32_t Masking::shown(int32_t token, const std::array<uint32_t, 4>& draws) const {
  double share = uniform01(draws[1]);
  if (share < options_.masked) return options_.mask_token;
  if (share >= options_.masked + options_.random) return token;
  uint64_t random = uint64_t{draws[2]} << 32 | draws[3];
  return static_cast<int32_t>(random % static_cast<uint64_t>(options_.vocabulary));
}

void Masking::fill(const TokenSource& file, const RandomStream& stream, int64_t begin,
                   std::span<int32_t> tokens, std::span<int32_t> targets) const {
  const MaskingOptions& o = options_;
  ensure(tokens.size() == targets.size() && static_cast<int64_t>(tokens.size()) > frame(),
         "a masked row needs as many targets as tokens, and a token besides its frame, got {} "
         "tokens and {} targets",
         tokens.size(), targets.size());
  std::ranges::copy(o.before, tokens.begin());
  std::ranges::copy(o.after, tokens.end() - static_cast<std::ptrdiff_t>(o.after.size()));
  std::ranges::fill(targets, kNoTarget);
  std::span<int32_t> text =
      tokens.subspan(o.before.size(), tokens.size() - static_cast<size_t>(frame()));
  file.copy(begin, text);
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::ranges::binary_search(o.special, text[i])) continue;
    // Every token has a random block of its own, even if it does not use the block.
    std::array<uint32_t, 4> draws = stream.block(static_cast<uint64_t>(begin) + i);
    if (uniform01(draws[0]) >= o.probability) continue;
    targets[o.before.size() + i] = text[i];
    text[i] = shown(text[i], draws);
  }
}

std::string Masking::describe() const {
  const MaskingOptions& o = options_;
  return fmt::format(
      "{:g} % of the tokens are targets: {:g} % of these become token {}, {:g} % a random one, "
      "{:g} % stay; {} tokens frame each sample",
      100 * o.probability, 100 * o.masked, o.mask_token, 100 * o.random,
      std::max(0.0, 100 * (1 - o.masked - o.random)), frame());
}

}  // namespace ds
