// bpe_learner.h describes the algorithm. Everything is ordered (words, heap, ties), so that the
// result does not depend on hashing.
#include "text/tokenizers/bpe_learner.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/stop.h"
#include "io/file.h"
#include "text/tokenizers/byte_alphabet.h"
#include "text/tokenizers/hugging_face.h"
#include "text/tokenizers/pieces.h"
#include "text/tokenizers/pre_tokenizer.h"
#include "text/tokenizers/traced_text.h"

namespace ds::text {
namespace {

void check_stop(const volatile int32_t* stop) {
  if (stop_asked(stop))
    raise(DS_ERROR_USER, "a stop was requested while the vocabulary was learned");
}

// Ascending pairs have ascending keys.
uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// All words and pairs, and the merges made so far.
class Learner {
 public:
  Learner(const std::vector<std::pair<std::string, int64_t>>& words, int64_t vocab)
      : vocab_(vocab) {
    add_bytes();
    for (const auto& [word, count] : words) {
      for (size_t at = 0; at < word.size(); at += kLearnedWord)
        add_word(word.substr(at, kLearnedWord), count);
    }
    for (const auto& [key, pair] : pairs_) heap_.push({pair.count, key});
  }

  // Merges the pair at the top of the heap until the vocabulary is full. A pair whose count is
  // outdated goes back with its current count instead.
  LearnedBpe learn(const volatile int32_t* stop) {
    while (static_cast<int64_t>(out_.spellings.size()) < vocab_ && !heap_.empty()) {
      check_stop(stop);
      Candidate best = heap_.top();
      heap_.pop();
      int64_t count = pairs_.at(best.key).count;
      // Pairs that occur once are not worth a token.
      if (count < kLeastCount) continue;
      if (count != best.count) {
        heap_.push({count, best.key});
      } else {
        merge(best.key);
      }
    }
    return std::move(out_);
  }

 private:
  static constexpr int64_t kLeastCount = 2;

  struct Word {
    std::vector<int32_t> tokens;
    int64_t count;
  };
  struct Pair {
    int64_t count = 0;
    // Indices of the words that contain the pair or once contained it.
    std::vector<uint32_t> words;
  };
  struct Candidate {
    int64_t count;
    uint64_t key;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };

  // Adds token 0, which ends a text, and then the bytes in the order of the characters that spell
  // them.
  void add_bytes() {
    out_.spellings.emplace_back(kLearnedEnd);
    ByteAlphabet alphabet;
    std::vector<std::pair<std::string, uint8_t>> order;
    for (int byte = 0; byte < 256; ++byte) {
      order.emplace_back(alphabet.spelling(static_cast<uint8_t>(byte)), static_cast<uint8_t>(byte));
    }
    std::ranges::sort(order);
    for (const auto& [spelling, byte] : order) {
      byte_token_[byte] = static_cast<int32_t>(out_.spellings.size());
      ids_.emplace(spelling, byte_token_[byte]);
      out_.spellings.push_back(spelling);
    }
  }

  // Words are numbered in ascending order, so lists of words are sorted.
  void add_word(std::string_view text, int64_t count) {
    Word word{{}, count};
    for (char c : text) word.tokens.push_back(byte_token_[static_cast<uint8_t>(c)]);
    words_.push_back(std::move(word));
    count_pairs(static_cast<uint32_t>(words_.size() - 1), 1);
  }

  // Adds the pairs of a word to the counts, or subtracts them (sign -1). When adding, also enters
  // the word into the lists of those pairs that contain token `fresh`, or of all pairs if it is -1;
  // the other lists have it already.
  void count_pairs(uint32_t index, int64_t sign, int32_t fresh = -1) {
    const Word& word = words_[index];
    for (size_t i = 0; i + 1 < word.tokens.size(); ++i) {
      Pair& pair = pairs_[key_of(word.tokens[i], word.tokens[i + 1])];
      pair.count += sign * word.count;
      bool listed =
          sign < 0 || (fresh >= 0 && word.tokens[i] != fresh && word.tokens[i + 1] != fresh);
      if (!listed && (pair.words.empty() || pair.words.back() != index))
        pair.words.push_back(index);
    }
  }

  // Returns the token of a pair: the existing one with that spelling, which another pair may have
  // produced, or a new one.
  int32_t token_of(int32_t left, int32_t right) {
    std::string spelling =
        out_.spellings[static_cast<size_t>(left)] + out_.spellings[static_cast<size_t>(right)];
    auto [found, fresh] = ids_.emplace(spelling, static_cast<int32_t>(out_.spellings.size()));
    if (fresh) out_.spellings.push_back(spelling);
    return found->second;
  }

  // Turns a pair into a token. A word in the pair's list may no longer contain the pair; joining
  // then does not change the word.
  void merge(uint64_t key) {
    auto left = static_cast<int32_t>(key >> 32), right = static_cast<int32_t>(key & 0xffffffff);
    int32_t token = token_of(left, right);
    // A pair can be merged a second time if another merge has produced one of its tokens again. The
    // pair keeps its rank.
    if (ranked_.insert(key).second) out_.merges.emplace_back(left, right);
    std::vector<uint32_t> words = std::move(pairs_.at(key).words);
    pairs_.at(key).words.clear();
    for (uint32_t index : words) {
      count_pairs(index, -1);
      join(words_[index].tokens, left, right, token);
      count_pairs(index, 1, token);
      std::vector<int32_t>& tokens = words_[index].tokens;
      for (size_t i = 0; i + 1 < tokens.size(); ++i) {
        if (tokens[i] == token || tokens[i + 1] == token)
          risen_.push_back(key_of(tokens[i], tokens[i + 1]));
      }
    }
    std::ranges::sort(risen_);
    risen_.erase(std::unique(risen_.begin(), risen_.end()), risen_.end());
    for (uint64_t pair : risen_) heap_.push({pairs_.at(pair).count, pair});
    risen_.clear();
  }

  // Joins all occurrences of a pair in place, from left to right.
  static void join(std::vector<int32_t>& tokens, int32_t left, int32_t right, int32_t token) {
    size_t kept = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      bool here = i + 1 < tokens.size() && tokens[i] == left && tokens[i + 1] == right;
      tokens[kept++] = here ? token : tokens[i];
      if (here) ++i;
    }
    tokens.resize(kept);
  }

  const int64_t vocab_;
  LearnedBpe out_;
  std::unordered_map<std::string, int32_t> ids_;
  int32_t byte_token_[256];
  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::unordered_set<uint64_t> ranked_;
  std::priority_queue<Candidate> heap_;
  // Pairs with the token that a merge creates; only their counts may rise.
  std::vector<uint64_t> risen_;
};

}  // namespace

// Documents are cut separately, so no word spans two of them.
std::vector<std::pair<std::string, int64_t>> count_words(std::string_view text,
                                                         const volatile int32_t* stop) {
  const Json cut = byte_level(false);
  PreTokenizer pre_tokenizer = read_pre_tokenizer(&cut, "data.tokenizer");
  std::unordered_map<std::string, int64_t> counts;
  for (size_t begin = 0; begin < text.size();) {
    check_stop(stop);
    size_t end = std::min(text.find('\0', begin), text.size());
    Pieces pieces =
        pre_tokenizer.apply(TracedText::of(text.substr(begin, end - begin), begin, false), true);
    for (Range word : pieces.ranges)
      ++counts[pieces.text.substr(word.begin, word.end - word.begin)];
    begin = end + 1;
  }
  std::vector<std::pair<std::string, int64_t>> words(counts.begin(), counts.end());
  std::ranges::sort(words);
  return words;
}

LearnedBpe learn_bpe(const std::vector<std::pair<std::string, int64_t>>& words, int64_t vocab,
                     const volatile int32_t* stop) {
  require(vocab >= kLeastLearned, "a learned vocabulary must have at least {} tokens, got {}",
          kLeastLearned, vocab);
  return Learner(words, vocab).learn(stop);
}

// The members and their order are those of Hugging Face's tokenizers, so that files can be
// compared.
Json learned_tokenizer_json(const LearnedBpe& learned) {
  Json::Object vocabulary;
  for (size_t id = 0; id < learned.spellings.size(); ++id) {
    vocabulary.emplace_back(learned.spellings[id], static_cast<int64_t>(id));
  }
  Json::Array merges;
  for (auto [left, right] : learned.merges) {
    merges.emplace_back(Json::Array{learned.spellings[static_cast<size_t>(left)],
                                    learned.spellings[static_cast<size_t>(right)]});
  }
  Json end, model, json;
  end.set("id", 0);
  end.set("content", kLearnedEnd);
  for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) end.set(flag, false);
  end.set("special", true);
  model.set("type", "BPE");
  model.set("dropout", Json());
  for (const char* none : {"unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    model.set(none, Json());
  }
  for (const char* flag : {"fuse_unk", "byte_fallback", "ignore_merges"}) model.set(flag, false);
  model.set("vocab", std::move(vocabulary));
  model.set("merges", std::move(merges));
  json.set("version", "1.0");
  json.set("truncation", Json());
  json.set("padding", Json());
  json.set("added_tokens", Json::Array{std::move(end)});
  json.set("normalizer", Json());
  json.set("pre_tokenizer", byte_level(false));
  json.set("post_processor", Json());
  json.set("decoder", byte_level(false));
  json.set("model", std::move(model));
  return json;
}

// tokenizer.json is written last: a folder without it is not a tokenizer.
std::string learn_tokenizer(std::string_view text, int64_t vocab, const std::string& folder,
                            const volatile int32_t* stop) {
  std::vector<std::pair<std::string, int64_t>> words = count_words(text, stop);
  LearnedBpe learned = learn_bpe(words, vocab, stop);
  Json config;
  config.set("tokenizer_class", "PreTrainedTokenizerFast");
  config.set("eos_token", kLearnedEnd);
  write_file_atomic(folder + "/tokenizer_config.json", config.dump(2) + "\n");
  write_file_atomic(folder + "/tokenizer.json", learned_tokenizer_json(learned).dump(1) + "\n");
  return fmt::format(
      "vocabulary: {} tokens, {} merges, learned from {} different words of the training text",
      learned.spellings.size(), learned.merges.size(), words.size());
}

}  // namespace ds::text
