#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "data/tokenizer.h"

namespace ds {

// Learning a byte-level BPE vocabulary (Sennrich et al., ACL 2016, over bytes as in GPT-2).
//
// The text is cut into words as GPT-2 does; no token crosses a word. Every word begins as the
// tokens of its bytes. The adjacent pair that occurs most often in all words becomes a token, of
// equals the one of lower ids, until the vocabulary is full or no pair occurs twice. So the result
// depends on the text alone.
//
// Counting all pairs again for each of V merges would take O(V * text). Instead each different word
// is kept once with its number, and each pair with the words it occurs in: a merge looks only at
// these, and a heap that may hold outdated counts, put right when they come up, has the next pair.
inline constexpr int64_t kLeastLearned = 257;  // tokens: the bytes, and what ends a text
inline constexpr const char* kLearnedEnd = "<|endoftext|>";  // token 0

struct LearnedBpe {
  std::vector<std::string> spellings;               // by id, in ByteAlphabet
  std::vector<std::pair<int32_t, int32_t>> merges;  // by rank
};

// words: each with how often it occurs. Longer words are counted in parts of kLearnedWord bytes.
// vocab, at least kLeastLearned, is an upper bound. DS_ERROR_USER when *stop [nullable] becomes
// non-zero meanwhile.
inline constexpr size_t kLearnedWord = 256;
LearnedBpe learn_bpe(const std::vector<std::pair<std::string, int64_t>>& words, int64_t vocab,
                     const volatile int32_t* stop = nullptr);

// The words of a text whose documents are separated by NUL bytes, ascending.
std::vector<std::pair<std::string, int64_t>> count_words(std::string_view text,
                                                         const volatile int32_t* stop = nullptr);

// The content of a tokenizer.json, as Hugging Face's tokenizers writes it.
Json learned_tokenizer_json(const LearnedBpe& learned);

// Learns a byte-level BPE tokenizer of at most `vocab` tokens, kLeastLearned or more, from a text
// whose documents are separated by NUL bytes, and writes its files into `folder`, which exists;
// open_tokenizer(folder) opens it, and so does Hugging Face's tokenizers. Its files depend on the
// text and on vocab alone. Returns one line about it. DS_ERROR_USER when *stop [nullable] becomes
// non-zero meanwhile.
std::string learn_tokenizer(std::string_view text, int64_t vocab, const std::string& folder,
                            const volatile int32_t* stop = nullptr);

}  // namespace ds
