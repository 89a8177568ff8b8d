#include "data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "core/base/error.h"
#include "data/tokenizer.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

const std::string hash_a(32, 'a');

// A token file in which the token at i is i modulo vocab.
TokenFile counting_file(const test::TempFolder& folder, int64_t count, int64_t vocab = 65536) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i % static_cast<size_t>(vocab));
  write_token_file(folder / "count.tokens", tokens, vocab, hash_a);
  return TokenFile(folder / "count.tokens");
}

TEST(TokenFile, KeepsTokensOfEachWidth) {
  test::TempFolder folder;
  for (int64_t vocab : {2, 256, 257, 65536, 65537, 1000000}) {
    std::vector<int32_t> tokens{0, 1, static_cast<int32_t>(vocab - 1), 0};
    write_token_file(folder / "t", tokens, vocab, hash_a);
    TokenFile file(folder / "t");
    std::vector<int32_t> back(4);
    file.copy(0, back);
    EXPECT_EQ(back, tokens);
    EXPECT_EQ(file.vocab(), vocab);
    EXPECT_EQ(file.corpus_hash(), hash_a);
    EXPECT_THROW(file.copy(1, back), Error);
    EXPECT_THROW(file.copy(-1, back), Error);
    EXPECT_THROW(file.copy(INT64_MAX, back), Error);
    tokens.back() = static_cast<int32_t>(vocab);
    EXPECT_THROW(write_token_file(folder / "t", tokens, vocab, hash_a), Error);
  }
}

TEST(TokenFile, RefusesDamagedFiles) {
  test::TempFolder folder;
  EXPECT_THROW(TokenFile(folder / "none"), Error);
  write_token_file(folder / "t", std::vector<int32_t>{1, 2, 3}, 100, hash_a);
  std::ifstream stream(folder / "t", std::ios::binary);
  std::string good((std::istreambuf_iterator<char>(stream)), {});
  ASSERT_EQ(good.size(), 67u);
  auto refused = [&](const std::string& bytes) {
    std::ofstream(folder / "u", std::ios::binary) << bytes;
    try {
      TokenFile file(folder / "u");
      std::vector<int32_t> tokens(3);
      file.copy(0, tokens);
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused(good));
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_TRUE(refused(good.substr(0, length))) << length;
  EXPECT_TRUE(refused(good + "x"));
  for (size_t at = 0; at < 32; ++at) {  // magic, version, width, vocabulary, count
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x81);
    if (at == 16) continue;  // the low byte of the vocabulary stays plausible
    EXPECT_TRUE(refused(bad)) << at;
  }
  good.back() = static_cast<char>(100);
  EXPECT_TRUE(refused(good));  // a token outside the vocabulary
}

TEST(Dataset, PreparesAndOpens) {
  test::TempFolder folder;
  std::filesystem::create_directory(folder / "text");
  for (int i = 0; i < 50; ++i) {
    std::ofstream(folder / ("text/" + std::to_string(i))) << "some text " << i;
  }
  CorpusOptions options{{folder / "text"}, 0.3, 1 << 20, true};
  Corpus corpus = read_corpus(options);
  prepare_dataset(corpus, *open_tokenizer("bytes"), folder.path());
  Dataset dataset = open_dataset(folder.path());
  EXPECT_NE(describe(corpus).find(dataset.train.corpus_hash()), std::string::npos);
  EXPECT_EQ(dataset.train.size(), static_cast<int64_t>(corpus.train.size()));
  EXPECT_EQ(dataset.heldout.size(), static_cast<int64_t>(corpus.heldout.size()));
  std::vector<int32_t> tokens(corpus.train.size());
  dataset.train.copy(0, tokens);
  EXPECT_EQ(open_tokenizer("bytes")->decode(tokens), corpus.train);
  write_token_file(folder / "heldout.tokens", tokens, 256, hash_a);
  EXPECT_THROW(open_dataset(folder.path()), Error);
}

TEST(TrainSampler, EpochVisitsEveryWindowOnce) {
  test::TempFolder folder;
  for (int64_t count : {9, 10, 15, 16, 17, 100, 1000, 4099}) {
    TokenFile file = counting_file(folder, count);
    for (int64_t sequence : {1, 3, 8}) {
      TrainSampler sampler(file, sequence, 7);
      int64_t windows = sampler.epoch_samples();
      EXPECT_GE(windows, std::max<int64_t>(1, count / sequence - 1));
      for (int64_t epoch : {0, 1, 5}) {
        std::set<int64_t> begins;
        for (int64_t i = 0; i < windows; ++i) {
          int64_t begin = sampler.begin(epoch * windows + i);
          ASSERT_GE(begin, 0);
          ASSERT_LE(begin + sequence, count - 1);
          begins.insert(begin);
        }
        ASSERT_EQ(static_cast<int64_t>(begins.size()), windows);
        ASSERT_EQ(*begins.rbegin() - *begins.begin(), (windows - 1) * sequence);  // they do not overlap
      }
    }
  }
}

TEST(TrainSampler, IsShuffledAndSeeded) {
  test::TempFolder folder;
  TokenFile file = counting_file(folder, 100000);
  TrainSampler a(file, 10, 1), same(file, 10, 1), b(file, 10, 2);
  int64_t windows = a.epoch_samples();
  int ascending = 0, equal_seed = 0, equal_epoch = 0;
  std::set<int64_t> offsets;
  for (int64_t i = 0; i < 2000; ++i) {
    EXPECT_EQ(a.begin(i), same.begin(i));
    ascending += a.begin(i + 1) > a.begin(i);
    equal_seed += a.begin(i) == b.begin(i);
    equal_epoch += a.begin(i) / 10 == a.begin(i + windows) / 10;
  }
  for (int64_t epoch = 0; epoch < 50; ++epoch) offsets.insert(a.begin(epoch * windows) % 10);
  EXPECT_NEAR(ascending, 1000, 110);  // five standard deviations
  EXPECT_LE(equal_seed, 10);
  EXPECT_LE(equal_epoch, 10);
  EXPECT_GE(offsets.size(), 8u);
}

// Leaf l of step s holds samples (s * L + l) * mb and following, for every split of L leaves.
TEST(TrainSampler, LeavesAreSlicesOfOneStream) {
  test::TempFolder folder;
  TokenFile file = counting_file(folder, 5000);
  constexpr int64_t sequence = 6;
  TrainSampler sampler(file, sequence, 3);
  for (auto [leaves, micro_batch] : {std::pair<int64_t, int64_t>{1, 8}, {2, 4}, {8, 1}}) {
    for (int64_t step : {0, 1, 700}) {
      for (int64_t leaf = 0; leaf < leaves; ++leaf) {
        std::vector<int32_t> tokens(static_cast<size_t>(micro_batch * sequence)), targets(tokens.size());
        sampler.leaf(step, leaves, leaf, micro_batch, tokens, targets);
        for (int64_t i = 0; i < micro_batch; ++i) {
          int64_t begin = sampler.begin(step * 8 + leaf * micro_batch + i);
          for (int64_t t = 0; t < sequence; ++t) {
            auto at = static_cast<size_t>(i * sequence + t);
            ASSERT_EQ(tokens[at], begin + t);
            ASSERT_EQ(targets[at], begin + t + 1);
          }
        }
      }
    }
  }
  std::vector<int32_t> wrong(5);
  EXPECT_THROW(sampler.leaf(0, 1, 0, 1, wrong, wrong), Error);
  EXPECT_THROW(sampler.leaf(0, 1, 1, 1, wrong, wrong), Error);
}

TEST(TrainSampler, RefusesTooLittleText) {
  test::TempFolder folder;
  TokenFile file = counting_file(folder, 100);
  EXPECT_NO_THROW(TrainSampler(file, 10, 0, 9));
  try {
    TrainSampler(file, 10, 0, 10);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), DS_ERROR_CONFIG);
    EXPECT_NE(std::string(e.what()).find("100 tokens, 9 samples"), std::string::npos) << e.what();
  }
  EXPECT_NO_THROW(TrainSampler(file, 99, 0));
  EXPECT_THROW(TrainSampler(file, 100, 0), Error);
  EXPECT_THROW(HeldoutSampler(file, 100), Error);
}

TEST(HeldoutSampler, WindowsSpreadOverTheText) {
  test::TempFolder folder;
  TokenFile file = counting_file(folder, 1000);
  HeldoutSampler sampler(file, 9);
  EXPECT_EQ(sampler.begin(0, 1), 0);
  EXPECT_EQ(sampler.begin(0, 4), 0);
  EXPECT_EQ(sampler.begin(1, 4), 330);
  EXPECT_EQ(sampler.begin(3, 4), 990);  // its last target is the last token
  std::vector<int32_t> tokens(18), targets(18);
  sampler.windows(2, 2, 4, tokens, targets);
  EXPECT_EQ(tokens[0], 660);
  EXPECT_EQ(tokens[9], 990);
  EXPECT_EQ(targets[17], 999);
  EXPECT_THROW(sampler.begin(4, 4), Error);
}

}  // namespace
}  // namespace ds
