#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/byte_alphabet.h"
#include "text/tokenizers/pair_table.h"
#include "text/tokenizers/pieces.h"
#include "text/tokenizers/section.h"
#include "text/tokenizers/word_model.h"

namespace ds::text {

// U+2581, which sentencepiece writes for a space.
constexpr std::string_view space_mark = "\xe2\x96\x81";

// Byte pair encoding (Sennrich et al., ACL 2016), the "model" BPE of a tokenizer.json. A word
// starts as the tokens of its characters. The adjacent pair of lowest rank, the leftmost among
// equals, is joined until no pair has a rank. A word of n characters takes O(n log n) time.
class Bpe : public WordModel {
 public:
  // With `spell_bytes`, words are bytes, and each byte is a character of ByteAlphabet.
  Bpe(Section& section, bool spell_bytes);
  ~Bpe() override;

  void encode(const Pieces& words, std::vector<int32_t>& out,
              std::vector<Range>* sources) const override;

 private:
  // Buffers for one word, which the words of a text share.
  struct Scratch;
  // Tokens of recent words.
  class Cache;
  void read_merges(Section& section);
  // Looks up the tokens of all bytes once, so that encoding need not search for them.
  void fill_byte_tokens();
  void encode_word(std::string_view word, Scratch& scratch, Cache* cache,
                   std::vector<int32_t>& out) const;
  void first_tokens(std::string_view word, Scratch& scratch) const;
  // Adds the prefix to characters after the first and the suffix to the last one.
  std::string affixed(std::string_view character, bool first, bool last) const;
  void add_character(std::string_view text, Range span, Scratch& scratch) const;
  // These functions join the tokens of a word: short words by scanning, long ones with a heap.
  void join_short(Scratch& scratch) const;
  void join_long(Scratch& scratch) const;

  PairTable merges_;
  ByteAlphabet alphabet_;
  // For each byte, the token of its spelling in ByteAlphabet, or -1.
  std::array<int32_t, 256> spelt_byte_;
  // For each byte, its token "<0xNN>", or -1.
  std::array<int32_t, 256> fallback_byte_;
  std::string prefix_, suffix_, unknown_;
  bool spell_bytes_, byte_fallback_, fuse_unknown_, ignore_merges_;
  // True if no merge crosses the boundary before a space mark that follows another character.
  bool cut_at_spaces_ = false;
  std::unique_ptr<Cache> cache_;
};

}  // namespace ds::text
