// Spells words by the greedy longest match.
#include "text/tokenizers/word_piece.h"

#include <algorithm>
#include <cstdint>

#include "text/tokenizers/pieces.h"
#include "text/tokenizers/section.h"

namespace ds::text {
namespace {

// Spelling a word may take time cubic in its length: there is a candidate for each beginning and
// each end, and looking a candidate up is linear. So the number of characters is bounded.
constexpr int64_t kMostCharacters = 256;

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return !continues_character(c); });
}

}  // namespace

WordPiece::WordPiece(Section& section) : WordModel(section) {
  prefix_ = section.text("continuing_subword_prefix", "##");
  std::string unknown = section.text("unk_token", "[UNK]");
  unknown_ = find(unknown);
  if (unknown_ < 0) {
    raise(DS_ERROR_CORRUPT, "{}: '{}' is not in the vocabulary", section.path("unk_token"),
          unknown);
  }
  bool limited = section.find("max_input_chars_per_word") != nullptr;
  most_characters_ =
      limited ? section.integer("max_input_chars_per_word", 0, kMostCharacters) : 100;
  section.done();
  for (const auto& [piece, id] : vocabulary_) longest_ = std::max(longest_, piece.size());
}

// Spells one word, or returns false. `piece` is a buffer for the candidate.
bool WordPiece::spell(std::string_view word, std::string& piece, std::vector<int32_t>& out,
                      std::vector<Range>& spans) const {
  for (size_t begin = 0; begin < word.size();) {
    size_t before = begin == 0 ? 0 : prefix_.size();
    size_t end = std::min(word.size(), begin + longest_ - std::min(longest_, before));
    while (end < word.size() && end > begin && continues_character(word[end])) --end;
    piece.assign(prefix_, 0, before).append(word, begin, end - begin);
    int32_t token = -1;
    // Shortens the candidate by one character until it is in the vocabulary.
    while (end > begin && (token = find(piece)) < 0) {
      do --end;
      while (end > begin && continues_character(word[end]));
      piece.resize(before + end - begin);
    }
    if (token < 0 || end == begin) return false;
    out.push_back(token);
    spans.push_back({begin, end});
    begin = end;
  }
  return true;
}

// A word that cannot be spelled loses the pieces found so far.
void WordPiece::encode(const Pieces& words, std::vector<int32_t>& out,
                       std::vector<Range>* sources) const {
  std::string piece;
  std::vector<Range> spans;
  for (const Range& range : words.ranges) {
    std::string_view word = words.view(range);
    size_t before = out.size();
    spans.clear();
    if (characters(word) > most_characters_ || !spell(word, piece, out, spans)) {
      out.resize(before);
      out.push_back(unknown_);
      spans = {{0, word.size()}};
    }
    if (!sources) continue;
    for (Range span : spans) {
      sources->push_back(words.source({range.begin + span.begin, range.begin + span.end}));
    }
  }
}

}  // namespace ds::text
