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

// A row of a batch that predicts no token.
inline constexpr int32_t kNoTarget = -100;

struct MaskingOptions {
  double probability = 0.15;  // share of the text's tokens that are targets
  double masked = 0.8,
         random = 0.1;     // shares of these that become the mask token, a random one; others stay
  int32_t mask_token = 0;  // below the model's vocabulary, as all tokens
  int64_t vocabulary = 0;  // random tokens are 0 to vocabulary - 1
  std::vector<int32_t> before, after;  // around the text of each row
  std::vector<int32_t> special;        // tokens that are never targets
};

// Rows of masked language modelling (Devlin et al., "BERT", NAACL 2019). What happens to a token is
// drawn from the block of a random stream that its place in the text has as number, so it depends
// on nothing but the stream and the place: no state is kept, and neither rank layout nor a resume
// can change it.
class Masking {
 public:
  explicit Masking(MaskingOptions options);

  int64_t frame() const;  // tokens of a row that are not of the text
  size_t before() const { return options_.before.size(); }  // of these, those in front of it
  // One row: `before`, the text from token `begin` of the file on, `after`. tokens is what the
  // model sees; targets has the tokens that it must find, kNoTarget elsewhere.
  void fill(const TokenSource& file, const RandomStream& stream, int64_t begin,
            std::span<int32_t> tokens, std::span<int32_t> targets) const;
  std::string describe() const;  // one line

 private:
  int32_t shown(int32_t token, const std::array<uint32_t, 4>& draws) const;

  MaskingOptions options_;  // special is sorted
};

}  // namespace ds
