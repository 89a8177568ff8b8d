#include "data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "core/base/error.h"
#include "data/masking.h"
#include "data/tokenizer.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

const std::string hash_a(32, 'a');

// Returns a token file whose token i is i modulo vocab.
TokenFile counting_file(const test::TempFolder& folder, int64_t count, int64_t vocab = 65536) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(i % static_cast<size_t>(vocab));
  write_token_file(folder / "count.tokens", tokens, vocab, hash_a);
  return TokenFile(folder / "count.tokens");
}

TEST(TokenFile, KeepsTokensOfEveryWidth) {
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

std::string bytes_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Returns the error of reading a complete token file with these bytes, or "".
std::string reading_error(const test::TempFolder& folder, const std::string& bytes) {
  std::ofstream(folder / "u", std::ios::binary) << bytes;
  try {
    TokenFile file(folder / "u");
    std::vector<int32_t> tokens(static_cast<size_t>(file.size()));
    file.copy(0, tokens);
    file.ends();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TokenFile, RefusesDamagedFiles) {
  test::TempFolder folder;
  EXPECT_THROW(TokenFile(folder / "none"), Error);
  write_token_file(folder / "t", std::vector<int32_t>{1, 2, 3}, 100, hash_a);
  std::string good = bytes_of(folder / "t");
  // The file has a header, 3 tokens with padding, and one checksum.
  ASSERT_EQ(good.size(), 144u);
  EXPECT_EQ(reading_error(folder, good), "");
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_NE(reading_error(folder, good.substr(0, length)), "") << length;
  }
  EXPECT_NE(reading_error(folder, good + "x"), "");
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x81);
    EXPECT_NE(reading_error(folder, bad), "") << at;
  }
  std::string shorter = reading_error(folder, good.substr(0, 130));
  EXPECT_NE(shorter.find("has 130 bytes, but 3 tokens of 1 bytes in 0 documents need 144"),
            std::string::npos)
      << shorter;
}

// Files of version 1 have no checksums.
TEST(TokenFile, ReadsVersion1) {
  test::TempFolder folder;
  write_token_file(folder / "t", std::vector<int32_t>{1, 2, 3}, 100, hash_a);
  std::string old = bytes_of(folder / "t").substr(0, 64) + "\1\2\3";
  old[8] = 1;
  EXPECT_EQ(reading_error(folder, old), "");
  EXPECT_NE(reading_error(folder, old + "\4"), "");
  EXPECT_NE(reading_error(folder, old.substr(0, 66)), "");
  old.back() = static_cast<char>(100);
  EXPECT_NE(reading_error(folder, old).find("token must be below 100, got 100"), std::string::npos);
}

TEST(TokenFile, TruncationWhileReadingNamesBothSizes) {
  test::TempFolder folder;
  std::vector<int32_t> tokens(200000, 7);
  write_token_file(folder / "t", tokens, 100, hash_a);
  TokenFile file(folder / "t");
  file.copy(0, std::span(tokens).first(100));
  std::filesystem::resize_file(folder / "t", 100000);
  // These tokens are in the window that has already been read.
  file.copy(0, std::span(tokens).first(100));
  try {
    file.copy(150000, std::span(tokens).first(100));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), DS_ERROR_CORRUPT);
    EXPECT_NE(
        std::string(error.what()).find("had 200160 bytes when it was opened and has 100000 now"),
        std::string::npos)
        << error.what();
  }
}

// Reads a file that is larger than the window at random positions from several threads.
TEST(TokenFile, ReadsThroughAWindow) {
  test::TempFolder folder;
  for (int64_t vocab : {200, 60000, 100000}) {
    TokenFile file = counting_file(folder, 1500000, vocab);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 dice(t);
        for (int i = 0; i < 200; ++i) {
          auto begin = static_cast<int64_t>(dice() % 1490000);
          std::vector<int32_t> out(dice() % 9000);
          file.copy(begin, out);
          for (size_t k = 0; k < out.size(); ++k) {
            ASSERT_EQ(out[k], (begin + static_cast<int64_t>(k)) % vocab);
          }
        }
      });
    }
    for (std::thread& one : threads) one.join();
  }
}

TEST(TokenWriter, AnUnfinishedFileIsRemoved) {
  test::TempFolder folder;
  {
    TokenWriter writer(folder / "t", {.vocab = 10});
    writer.add(std::vector<int32_t>{1, 2});
    EXPECT_THROW(writer.add(std::vector<int32_t>{10}), Error);
    EXPECT_THROW(writer.add(std::vector<int32_t>{1}, std::vector<uint8_t>{1}), Error);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Dataset, OpensTokenFilesAndHoldsOutTheirEnd) {
  test::TempFolder folder;
  std::vector<int32_t> tokens(1000);
  std::iota(tokens.begin(), tokens.end(), 0);
  std::string mine(32, 'b');
  write_token_file(folder / "a.tokens", std::span(tokens).first(600), 1000, hash_a, mine);
  write_token_file(folder / "b.tokens", std::span(tokens).subspan(600), 1000, hash_a, mine);
  Dataset dataset = open_token_files({folder.path()}, 0.25, mine);
  EXPECT_EQ(dataset.train.size(), 750);
  EXPECT_EQ(dataset.heldout.size(), 250);
  std::vector<int32_t> read(750);
  dataset.train.copy(0, read);
  EXPECT_TRUE(std::equal(read.begin(), read.end(), tokens.begin()));
  EXPECT_EQ(dataset.train.largest(), 999);
  EXPECT_EQ(open_token_files({folder.path()}, 0, mine).heldout.size(), 0);
  try {
    open_token_files({folder.path()}, 0, std::string(32, 'c'));
    FAIL();
  } catch (const Error& error) {
    std::string text = error.what();
    EXPECT_NE(text.find("a.tokens was made by a tokenizer with hash " + mine), std::string::npos)
        << text;
    EXPECT_NE(text.find("data.tokenizer has " + std::string(32, 'c')), std::string::npos) << text;
  }
  EXPECT_THROW(open_token_files({folder / "none"}, 0, mine), Error);
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
  EXPECT_NE(describe(corpus).find(dataset.corpus_hash), std::string::npos);
  EXPECT_EQ(dataset.train.size(), static_cast<int64_t>(corpus.train.size()));
  EXPECT_EQ(dataset.heldout.size(), static_cast<int64_t>(corpus.heldout.size()));
  std::vector<int32_t> tokens(corpus.train.size());
  dataset.train.copy(0, tokens);
  EXPECT_EQ(open_tokenizer("bytes")->decode(tokens), corpus.train);
  write_token_file(folder / "heldout.tokens", tokens, 256, hash_a);
  EXPECT_THROW(open_dataset(folder.path()), Error);
}

// The text of a corpus ends with the end of its last file, after which no file begins.
TEST(Dataset, EachFileIsFramedOnce) {
  test::TempFolder folder;
  std::filesystem::create_directory(folder / "text");
  for (int i = 0; i < 3; ++i)
    std::ofstream(folder / ("text/" + std::to_string(i))) << "some text " << i;
  auto tokenizer = open_tokenizer(std::string(DS_SOURCE_DIR) + "/tests/data/tokenizers/llama3");
  ASSERT_EQ(tokenizer->frame().before.size(), 1u);
  prepare_dataset(read_corpus({{folder / "text"}, 0, 1 << 20, true}), *tokenizer, folder.path());
  Dataset dataset = open_dataset(folder.path());
  std::vector<int32_t> tokens(static_cast<size_t>(dataset.train.size()));
  dataset.train.copy(0, tokens);
  EXPECT_EQ(std::ranges::count(tokens, tokenizer->frame().before[0]), 3);
  EXPECT_EQ(dataset.heldout.size(), 0);
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
        // The windows do not overlap.
        ASSERT_EQ(*begins.rbegin() - *begins.begin(), (windows - 1) * sequence);
      }
    }
  }
}

TEST(TrainSampler, ShufflesByTheSeed) {
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
  // The tolerance is five standard deviations.
  EXPECT_NEAR(ascending, 1000, 110);
  EXPECT_LE(equal_seed, 10);
  EXPECT_LE(equal_epoch, 10);
  EXPECT_GE(offsets.size(), 8u);
}

// For any first row and number of rows, fill() returns a slice of one stream.
TEST(TrainSampler, RowsAreSlicesOfOneStream) {
  test::TempFolder folder;
  TokenFile file = counting_file(folder, 5000);
  constexpr int64_t sequence = 6;
  TrainSampler sampler(file, sequence, 3);
  for (auto [first, count] : {std::pair<int64_t, int64_t>{0, 8}, {3, 1}, {820, 30}, {5600, 5}}) {
    std::vector<int32_t> tokens(static_cast<size_t>(count * sequence)), targets(tokens.size()),
        counted(tokens.size());
    sampler.rows(first, count, {tokens, targets, {}, counted});
    EXPECT_EQ(counted, std::vector<int32_t>(tokens.size(), 1));
    for (int64_t i = 0; i < count; ++i) {
      int64_t begin = sampler.begin(first + i);
      for (int64_t t = 0; t < sequence; ++t) {
        auto at = static_cast<size_t>(i * sequence + t);
        ASSERT_EQ(tokens[at], begin + t);
        ASSERT_EQ(targets[at], begin + t + 1);
      }
    }
  }
  std::vector<int32_t> wrong(5);
  EXPECT_THROW(sampler.rows(0, 1, {wrong, wrong}), Error);
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
    EXPECT_NE(std::string(e.what()).find("100 tokens, enough for 9 samples"), std::string::npos)
        << e.what();
  }
  EXPECT_NO_THROW(TrainSampler(file, 99, 0));
  EXPECT_THROW(TrainSampler(file, 100, 0), Error);
  EXPECT_NO_THROW(HeldoutSampler(file, 1000));
  EXPECT_THROW(HeldoutSampler(counting_file(folder, 1), 10), Error);
}

// Each token but the first is the target of exactly one row. The rest of the last row is padding.
TEST(HeldoutSampler, EachTargetOccursOnce) {
  test::TempFolder folder;
  for (int64_t count : {2, 9, 10, 11, 1000}) {
    TokenFile file = counting_file(folder, count);
    HeldoutSampler sampler(file, 9);
    std::vector<int32_t> seen;
    for (int64_t row = 0; row < sampler.rows(); ++row) {
      std::vector<int32_t> tokens(12, -1), targets(12, -1), counted(12, -1);
      sampler.fill(row, 3, {tokens, targets, {}, counted});
      EXPECT_EQ(tokens[2], -1);
      for (size_t i = 3; i < 12; ++i) {
        EXPECT_EQ(counted[i], targets[i] == kNoTarget ? 0 : 1);
        EXPECT_EQ(tokens[i], counted[i] == 1 ? targets[i] - 1 : 0);
        if (counted[i] == 1) seen.push_back(targets[i]);
      }
    }
    std::vector<int32_t> wanted(static_cast<size_t>(count - 1));
    std::iota(wanted.begin(), wanted.end(), 1);
    EXPECT_EQ(seen, wanted) << count;
    EXPECT_THROW(sampler.fill(sampler.rows(), 0, {}), Error);
  }
}

}  // namespace
}  // namespace ds
