#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "data/token_source.h"

namespace ds {

// The target of a row that predicts no token.
inline constexpr int32_t kNoTarget = -100;

struct MaskingOptions {
  // The probability that a token of the text is a target, unless it is special.
  double probability = 0.15;
  // The probabilities that a target becomes the mask token or a random token. Otherwise it stays as
  // it is.
  double masked = 0.8, random = 0.1;
  // The token that replaces hidden ones. Like all tokens, it must be below the model's vocabulary.
  int32_t mask_token = 0;
  // Random tokens are 0 to vocabulary - 1.
  int64_t vocabulary = 0;
  // Tokens around the text of each row.
  std::vector<int32_t> before, after;
  // Tokens that are never targets.
  std::vector<int32_t> special;
};

// Rows of masked language modelling (Devlin et al., "BERT", NAACL 2019). For each token that is not
// special, one block of a random stream decides whether the token is hidden and by what; the index
// of the block is the position of the token in the text. The decision depends on the stream and the
// position alone, so no state is kept, and neither the layout of ranks nor a resume can change it.
class Masking {
 public:
  explicit Masking(MaskingOptions options);

  // Returns the number of tokens of a row that are not text.
  int64_t frame() const;
  // Returns how many of the frame's tokens come before the text.
  size_t before() const { return options_.before.size(); }
  // Fills one row: `before`, the text from token `begin` of the file on, `after`. `tokens` gets the
  // input of the model; `targets` the tokens that it must predict, and kNoTarget elsewhere.
  void fill(const TokenSource& file, const RandomStream& stream, int64_t begin,
            std::span<int32_t> tokens, std::span<int32_t> targets) const;
  // Returns one line for the log.
  std::string describe() const;

 private:
  int32_t shown(int32_t token, const std::array<uint32_t, 4>& draws) const;

  // options_.special is sorted.
  MaskingOptions options_;
};

}  // namespace ds
