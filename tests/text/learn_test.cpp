// Tests the vocabulary that a run learns from its training text.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "io/file.h"
#include "support/dice.h"
#include "support/temp_folder.h"
#include "text/tokenizer.h"
#include "text/tokenizers/bpe_learner.h"

namespace ds::text {
namespace {

using Words = std::vector<std::pair<std::string, int64_t>>;

// The definition of the algorithm in its simplest form: all pairs are counted again for each merge.
struct NaiveLearner {
  std::vector<std::vector<int32_t>> words;
  std::vector<int64_t> counts;
  std::vector<std::string> spellings;
  std::vector<std::pair<int32_t, int32_t>> merges;

  void learn(size_t vocab) {
    std::set<std::pair<int32_t, int32_t>> ranked;
    while (spellings.size() < vocab) {
      std::map<std::pair<int32_t, int32_t>, int64_t> pairs;
      for (size_t w = 0; w < words.size(); ++w) {
        for (size_t i = 0; i + 1 < words[w].size(); ++i)
          pairs[{words[w][i], words[w][i + 1]}] += counts[w];
      }
      std::pair<int32_t, int32_t> best;
      int64_t most = 1;
      for (const auto& [pair, count] : pairs) {
        if (count > most) best = pair, most = count;
      }
      if (most < 2) return;
      std::string spelling =
          spellings[static_cast<size_t>(best.first)] + spellings[static_cast<size_t>(best.second)];
      auto found = std::find(spellings.begin(), spellings.end(), spelling);
      auto token = static_cast<int32_t>(found - spellings.begin());
      if (found == spellings.end()) spellings.push_back(spelling);
      if (ranked.insert(best).second) merges.push_back(best);
      for (std::vector<int32_t>& word : words) {
        for (size_t i = 0; i + 1 < word.size(); ++i) {
          if (std::pair(word[i], word[i + 1]) != best) continue;
          word[i] = token;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
      }
    }
  }
};

LearnedBpe naive(const Words& words, int64_t vocab) {
  LearnedBpe bytes = learn_bpe({}, kLeastLearned);
  NaiveLearner learner;
  learner.spellings = bytes.spellings;
  std::map<std::string, int32_t> ids;
  for (size_t id = 0; id < bytes.spellings.size(); ++id)
    ids[bytes.spellings[id]] = static_cast<int32_t>(id);
  for (const auto& [word, count] : words) {
    std::vector<int32_t> tokens;
    // The initial tokens are letters.
    for (char c : word) tokens.push_back(ids.at(std::string(1, c)));
    learner.words.push_back(tokens);
    learner.counts.push_back(count);
  }
  learner.learn(static_cast<size_t>(vocab));
  return {learner.spellings, learner.merges};
}

TEST(LearnBpe, EqualsTheDefinition) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    test::Dice dice(11, seed);
    Words words;
    std::set<std::string> seen;
    // With few letters, repeated letters and equally frequent pairs are common.
    int64_t letters = 1 + dice.below(5);
    for (int64_t w = 0; w < 40; ++w) {
      std::string word;
      for (int64_t i = 0, n = 1 + dice.below(12); i < n; ++i) {
        word.push_back(static_cast<char>('a' + dice.below(letters)));
      }
      if (seen.insert(word).second) words.emplace_back(word, 1 + dice.below(6));
    }
    for (int64_t vocab : {257, 258, 275, 400}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", vocab " << vocab);
      LearnedBpe mine = learn_bpe(words, vocab), plain = naive(words, vocab);
      ASSERT_EQ(mine.merges, plain.merges);
      ASSERT_EQ(mine.spellings, plain.spellings);
      ASSERT_LE(static_cast<int64_t>(mine.spellings.size()), vocab);
    }
  }
}

std::unique_ptr<const Tokenizer> learned(const std::string& text, int64_t vocab,
                                         const std::string& folder) {
  std::filesystem::create_directories(folder);
  learn_tokenizer(text, vocab, folder);
  return open_tokenizer(folder);
}

TEST(LearnBpe, TokenizerReproducesEveryText) {
  test::TempFolder folder;
  std::string code =
      "def f(x):\n    if x:\n\t\treturn  x + 1\r\n\n\n    return \"\xc3\xa9\xe2\x96\x81\"\n";
  std::string text;
  for (int i = 0; i < 50; ++i) text += code + std::to_string(i * 37) + std::string(1, '\0');
  auto tokenizer = learned(text, 400, folder / "t");
  ASSERT_TRUE(tokenizer->end_of_text().has_value());
  EXPECT_EQ(*tokenizer->end_of_text(), 0);
  EXPECT_LE(tokenizer->vocab(), 400);
  EXPECT_LT(tokenizer->encode(code).size() * 2, code.size());
  auto same = [&](const std::string& one) {
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(one)), one) << one;
  };
  same(code);
  same("");
  for (uint32_t i = 0; i < 300; ++i) {
    test::Dice dice(12, i);
    std::string random;
    for (int64_t n = dice.below(60); n > 0; --n) {
      char32_t point =
          static_cast<char32_t>(dice.one_in(2) ? dice.below(128) : dice.below(0x110000));
      if (point >= 0xd800 && point < 0xe000) point = U'\n';
      utf8_append(random, point);
    }
    same(random);
  }
}

TEST(LearnBpe, FilesDependOnlyOnTheText) {
  test::TempFolder folder;
  std::string a = "one two two\nthree", b = "four  four\tfour one", joint = a + '\0' + b + '\0' + a;
  learned(joint, 300, folder / "1");
  learned(joint, 300, folder / "2");
  // The order of documents does not matter.
  learned(b + '\0' + a + '\0' + a, 300, folder / "3");
  for (const char* name : {"/tokenizer.json", "/tokenizer_config.json"}) {
    EXPECT_EQ(read_file(folder / "1" + name), read_file(folder / "2" + name));
    EXPECT_EQ(read_file(folder / "1" + name), read_file(folder / "3" + name));
  }
  // No word extends over the end of a document.
  auto words = count_words(std::string("ab\0ab", 5));
  ASSERT_EQ(words.size(), 1u);
  EXPECT_EQ(words[0], (std::pair<std::string, int64_t>{"ab", 2}));
}

TEST(LearnBpe, LongWordsAndEmptyTextsAreAccepted) {
  EXPECT_THROW(learn_bpe({}, 256), Error);
  EXPECT_EQ(learn_bpe({}, 300).merges.size(), 0u);
  EXPECT_EQ(learn_bpe({{"abc", 1}}, 300).merges.size(), 0u) << "no pair occurs twice";
  // A word of a megabyte must not take quadratic time.
  LearnedBpe long_word = learn_bpe({{std::string(1 << 20, 'x'), 1}}, 300);
  EXPECT_EQ(long_word.spellings.back(), std::string(256, 'x'));
  volatile int32_t stop = 1;
  EXPECT_THROW(learn_bpe({{"aaaa", 5}}, 300, &stop), Error);
  EXPECT_THROW(count_words("text", &stop), Error);
}

}  // namespace
}  // namespace ds::text
