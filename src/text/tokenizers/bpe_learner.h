#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "text/tokenizer.h"

namespace ds::text {

// Learns a byte-level BPE vocabulary (Sennrich et al., ACL 2016, over bytes as in GPT-2).
//
// The text is cut into words as GPT-2 does, and no token crosses a word. Every word starts as the
// tokens of its bytes. Then, repeatedly, the adjacent pair that occurs most often in all words
// becomes a token, until the vocabulary is full or no pair occurs twice. Of equally frequent pairs
// the one with the lowest ids is taken, so the result depends on the text alone.
//
// Counting all pairs again for each of V merges would take O(V * text). Instead each distinct word
// is kept once with its count, and each pair with the words in which it occurs, so a merge reads
// only these words. A heap yields the next pair; its counts may be outdated and are corrected when
// a pair leaves the heap.

// Number of tokens that every learned vocabulary has: the bytes and the end of a text.
inline constexpr int64_t kLeastLearned = 257;
// The end of a text, token 0.
inline constexpr const char* kLearnedEnd = "<|endoftext|>";

struct LearnedBpe {
  // Spellings in ByteAlphabet, by id.
  std::vector<std::string> spellings;
  // Pairs of token ids, by rank.
  std::vector<std::pair<int32_t, int32_t>> merges;
};

// The largest size in bytes of a word that is learned as a whole. Longer words are cut into parts
// of this size.
inline constexpr size_t kLearnedWord = 256;
// Learns a vocabulary. `words` are different words with their counts. `vocab`, at least
// kLeastLearned, is an upper bound of the number of tokens. Throws DS_ERROR_USER if *stop
// [nullable] becomes non-zero meanwhile.
LearnedBpe learn_bpe(const std::vector<std::pair<std::string, int64_t>>& words, int64_t vocab,
                     const volatile int32_t* stop = nullptr);

// Returns the different words of a text whose documents are separated by NUL bytes, with their
// counts, in ascending order.
std::vector<std::pair<std::string, int64_t>> count_words(std::string_view text,
                                                         const volatile int32_t* stop = nullptr);

// Returns the content of a tokenizer.json as Hugging Face's tokenizers writes it.
Json learned_tokenizer_json(const LearnedBpe& learned);

// Learns a byte-level BPE tokenizer of at most `vocab` tokens, kLeastLearned or more, from a text
// whose documents are separated by NUL bytes, and writes its files into `folder`, which must exist.
// open_tokenizer(folder) opens it, and so does Hugging Face's tokenizers. Its files depend on the
// text and on vocab alone. Returns one line about the vocabulary. Throws DS_ERROR_USER if *stop
// [nullable] becomes non-zero meanwhile.
std::string learn_tokenizer(std::string_view text, int64_t vocab, const std::string& folder,
                            const volatile int32_t* stop = nullptr);

}  // namespace ds::text
