#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/byte_alphabet.h"
#include "data/tokenizers/pair_table.h"
#include "data/tokenizers/pieces.h"
#include "data/tokenizers/section.h"
#include "data/tokenizers/word_model.h"

namespace ds {

constexpr std::string_view space_mark =
    "\xe2\x96\x81";  // U+2581, which sentencepiece writes for a space
// Byte pair encoding (Sennrich et al., ACL 2016) as the "model" of a tokenizer.json has it: a word
// is its characters' tokens; the adjacent pair of lowest rank, the leftmost of equals, is joined
// until none has a rank. A word of n characters takes O(n log n).
class Bpe : public WordModel {
 public:
  // spell_bytes: words are bytes, each of which is a character of ByteAlphabet.
  Bpe(Section& section, bool spell_bytes);
  ~Bpe() override;

  void encode(const Pieces& words, std::vector<int32_t>& out,
              std::vector<Range>* sources) const override;

 private:
  struct Scratch;
  class Cache;
  void read_merges(Section& section);
  void fill_byte_tokens();
  void encode_word(std::string_view word, Scratch& scratch, Cache* cache,
                   std::vector<int32_t>& out) const;
  void first_tokens(std::string_view word, Scratch& scratch) const;
  std::string affixed(std::string_view character, bool first, bool last) const;
  void add_character(std::string_view text, Range span, Scratch& scratch) const;
  void join_short(Scratch& scratch) const;
  void join_long(Scratch& scratch) const;

  PairTable merges_;
  ByteAlphabet alphabet_;
  std::array<int32_t, 256> spelt_byte_;     // token of the byte's spelling; -1: none
  std::array<int32_t, 256> fallback_byte_;  // token "<0xNN>"; -1: none
  std::string prefix_, suffix_, unknown_;
  bool spell_bytes_, byte_fallback_, fuse_unknown_, ignore_merges_;
  bool cut_at_spaces_ =
      false;  // no merge crosses the place before a space mark that follows another character
  std::unique_ptr<Cache> cache_;
};

}  // namespace ds
