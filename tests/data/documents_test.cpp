// Rows of documents, with and without packing.
#include "data/documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "data/masking.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

const std::string kHash(32, 'a');

struct Made {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<uint8_t>> targets;
};

// Returns documents whose tokens are 1000 * document + position, and whose first `questions` tokens
// are not targets.
Made numbered(const std::vector<int>& lengths, int questions) {
  Made made;
  for (size_t d = 0; d < lengths.size(); ++d) {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> targets;
    for (int i = 0; i < lengths[d]; ++i) {
      tokens.push_back(static_cast<int32_t>(1000 * (d + 1) + static_cast<size_t>(i)));
      targets.push_back(i >= questions ? 1 : 0);
    }
    made.tokens.push_back(tokens);
    made.targets.push_back(targets);
  }
  return made;
}

TokenText written(const test::TempFolder& folder, const Made& made,
                  const std::string& name = "d.tokens") {
  TokenWriter writer(folder / name, {.vocab = 1000000, .documents = true, .marked = true});
  for (size_t d = 0; d < made.tokens.size(); ++d) writer.add(made.tokens[d], made.targets[d]);
  writer.finish(kHash);
  return TokenText(std::make_shared<TokenFile>(folder / name));
}

struct Row {
  std::vector<int32_t> tokens, targets;
};

Row row_of(const DocumentSampler& sampler, int64_t sample, int64_t sequence) {
  Row row{std::vector<int32_t>(static_cast<size_t>(sequence)),
          std::vector<int32_t>(static_cast<size_t>(sequence))};
  sampler.rows(sample, 1, {row.tokens, row.targets});
  return row;
}

TEST(DocumentSampler, ARowIsADocumentPlusPadding) {
  test::TempFolder folder;
  TokenText text = written(folder, numbered({3, 5, 9}, 1));
  DocumentSampler sampler(text, 6, Packing::none, 1);
  ASSERT_EQ(sampler.epoch_samples(), 3);
  std::map<int32_t, Row> rows;
  for (int64_t i = 0; i < 3; ++i) {
    Row row = row_of(sampler, i, 6);
    rows[row.tokens[0] / 1000] = row;
  }
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].tokens, (std::vector<int32_t>{1000, 1001, 1002, 0, 0, 0}));
  EXPECT_EQ(rows[1].targets, (std::vector<int32_t>{1001, 1002, -100, -100, -100, -100}));
  // A document that is longer than the row is truncated.
  EXPECT_EQ(rows[3].tokens, (std::vector<int32_t>{3000, 3001, 3002, 3003, 3004, 3005}));
  EXPECT_EQ(rows[3].targets, (std::vector<int32_t>{3001, 3002, 3003, 3004, 3005, 3006}));
}

TEST(DocumentSampler, QuestionsAreNotTargets) {
  test::TempFolder folder;
  TokenText text = written(folder, numbered({6}, 4));
  DocumentSampler sampler(text, 8, Packing::none, 1);
  EXPECT_EQ(row_of(sampler, 0, 8).targets,
            (std::vector<int32_t>{-100, -100, -100, 1004, 1005, -100, -100, -100}));
}

TEST(DocumentSampler, ALongDocumentContinuesInTheNextRows) {
  test::TempFolder folder;
  TokenText text = written(folder, numbered({10}, 0));
  DocumentSampler sampler(text, 4, Packing::none, 1);
  ASSERT_EQ(sampler.epoch_samples(), 3);
  std::map<int32_t, int32_t> next;
  for (int64_t i = 0; i < 3; ++i) {
    Row row = row_of(sampler, i, 4);
    for (size_t t = 0; t < 4; ++t) next[row.tokens[t]] = row.targets[t];
  }
  for (int32_t t = 1000; t < 1009; ++t) EXPECT_EQ(next[t], t + 1);
  EXPECT_EQ(next[1009], -100);
}

// Each document occurs exactly once per epoch, untruncated, and no target crosses into the next
// document.
TEST(DocumentSampler, PackingKeepsDocumentsWhole) {
  std::mt19937 dice(7);
  for (int round = 0; round < 20; ++round) {
    test::TempFolder folder;
    std::vector<int> lengths;
    for (int i = 0; i < 40; ++i) lengths.push_back(2 + static_cast<int>(dice() % 15));
    Made made = numbered(lengths, 1);
    TokenText text = written(folder, made);
    constexpr int64_t kSequence = 16;
    DocumentSampler packed(text, kSequence, Packing::joined, 3),
        single(text, kSequence, Packing::none, 3);
    int total = 0;
    for (int length : lengths) total += length;
    EXPECT_LT(packed.epoch_samples(), single.epoch_samples());
    // First-fit decreasing packing needs no more rows than this for these lengths.
    EXPECT_LE(packed.epoch_samples(), total * 11 / 9 / kSequence + 3);
    std::set<int32_t> seen;
    for (int64_t i = 0; i < packed.epoch_samples(); ++i) {
      Row row = row_of(packed, i, kSequence);
      for (size_t t = 0; t < row.tokens.size(); ++t) {
        if (row.tokens[t] == 0) {
          EXPECT_EQ(row.targets[t], -100);
          continue;
        }
        EXPECT_TRUE(seen.insert(row.tokens[t]).second) << row.tokens[t];
        bool last =
            row.tokens[t] % 1000 + 1 == lengths[static_cast<size_t>(row.tokens[t] / 1000 - 1)];
        EXPECT_EQ(row.targets[t], last ? -100 : row.tokens[t] + 1);
        EXPECT_TRUE(last || row.tokens[t + 1] == row.tokens[t] + 1);
      }
    }
    EXPECT_EQ(static_cast<int>(seen.size()), total);
  }
}

// The samples and their order are equal for every number of ranks and when resumed at any step.
TEST(DocumentSampler, OrderDoesNotDependOnRanks) {
  test::TempFolder folder;
  TokenText text = written(folder, numbered(std::vector<int>(50, 5), 1));
  constexpr int64_t kLeaves = 12, kSequence = 6;
  std::vector<std::vector<int32_t>> orders;
  for (Packing packing : {Packing::none, Packing::joined}) {
    for (int64_t ranks : {1, 2, 3, 4}) {
      DocumentSampler sampler(text, kSequence, packing, 9);
      std::vector<int32_t> order;
      for (int64_t step : {3, 4}) {
        for (int64_t micro = 0; micro < kLeaves / ranks; ++micro) {
          for (int64_t rank = 0; rank < ranks; ++rank) {
            Row row{std::vector<int32_t>(kSequence), std::vector<int32_t>(kSequence)};
            sampler.rows(step * kLeaves + micro * ranks + rank, 1, {row.tokens, row.targets});
            order.insert(order.end(), row.tokens.begin(), row.tokens.end());
          }
        }
      }
      orders.push_back(order);
      EXPECT_EQ(order, orders[packing == Packing::joined ? 4 : 0]);
    }
  }
  DocumentSampler a(text, kSequence, Packing::none, 9), other(text, kSequence, Packing::none, 10);
  int equal_seed = 0, equal_epoch = 0;
  for (int64_t i = 0; i < 50; ++i) {
    equal_seed += a.row(i) == other.row(i);
    equal_epoch += a.row(i) == a.row(i + 50);
  }
  EXPECT_LE(equal_seed, 8);
  EXPECT_LE(equal_epoch, 8);
}

TEST(DocumentSampler, LeavesOutDocumentsWithoutATargetInTheirRow) {
  test::TempFolder folder;
  Made made = numbered({10, 10}, 1);
  std::fill(made.targets[0].begin(), made.targets[0].begin() + 7, 0);
  TokenText text = written(folder, made);
  DocumentSampler sampler(text, 6, Packing::none, 1);
  EXPECT_EQ(sampler.epoch_samples(), 1);
  EXPECT_EQ(sampler.left_out(), 1);
  try {
    DocumentSampler(text, 6, Packing::none, 1, 2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("2 documents make 1 samples of 6 tokens, but one batch needs 2"),
              std::string::npos)
        << error.what();
  }
}

// If the prompts of all held-out documents fill their rows, there is no held-out sample; filling a
// batch with them is refused.
TEST(DocumentSampler, HasNoSamplesIfNoDocumentHasATarget) {
  test::TempFolder folder;
  TokenText text = written(folder, numbered({9, 12}, 8));
  for (Packing packing : {Packing::none, Packing::isolated})
    EXPECT_EQ(DocumentSampler(text, 6, packing, 1, 0).epoch_samples(), 0);
  EXPECT_THROW(DocumentSampler(text, 6, Packing::none, 1, 1), Error);
}

TEST(TokenText, ConcatenatesRangesOfFiles) {
  test::TempFolder folder;
  std::vector<int32_t> all(300);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  write_token_file(folder / "a", std::span(all).first(100), 500, kHash);
  write_token_file(folder / "b", std::span(all).subspan(90, 150), 500, kHash);
  TokenText text;
  text.append(std::make_shared<TokenFile>(folder / "a"), 20, 100);
  text.append(std::make_shared<TokenFile>(folder / "b"), 10, 150);
  ASSERT_EQ(text.size(), 220);
  std::mt19937 dice(3);
  for (int i = 0; i < 200; ++i) {
    auto begin = static_cast<int64_t>(dice() % 220),
         count = static_cast<int64_t>(dice() % static_cast<uint32_t>(221 - begin));
    std::vector<int32_t> out(static_cast<size_t>(count));
    text.copy(begin, out);
    for (int64_t t = 0; t < count; ++t) ASSERT_EQ(out[static_cast<size_t>(t)], 20 + begin + t);
  }
  write_token_file(folder / "c", all, 400, kHash);
  EXPECT_THROW(text.append(std::make_shared<TokenFile>(folder / "c"), 0, 1), Error);
  TokenText documents = written(folder, numbered({3}, 1));
  EXPECT_THROW(text.append(std::make_shared<TokenFile>(folder / "d.tokens"), 0, 1), Error);
}

// Each document of a row begins at its own row number, wherever the row is in the micro-batch, and
// each padding token is a document by itself.
TEST(Documents, BeginningsAreFoundInPackedRows) {
  test::TempFolder folder;
  TokenText text = written(folder, numbered({3, 5, 6, 2, 7}, 0));
  DocumentSampler sampler(text, 10, Packing::isolated, 1), joined(text, 10, Packing::joined, 1);
  std::vector<int32_t> tokens(20), targets(20), begins(20), counted(20), whole(20), same(20),
      rows(20);
  sampler.rows(0, 2, {tokens, targets, begins, counted});
  joined.rows(0, 2, {whole, same, rows});
  EXPECT_EQ(tokens, whole);
  EXPECT_EQ(targets, same);
  for (size_t i = 0; i < tokens.size(); ++i) {
    bool goes_on = i % 10 > 0 && tokens[i] != 0 && tokens[i] == tokens[i - 1] + 1;
    EXPECT_EQ(begins[i], goes_on ? begins[i - 1] : static_cast<int32_t>(i)) << i;
    EXPECT_EQ(counted[i], tokens[i] == 0 ? 0 : 1) << i;
    // With Packing::joined, the documents of a row are one text.
    EXPECT_EQ(rows[i], tokens[i] == 0 ? static_cast<int32_t>(i) : static_cast<int32_t>(i / 10 * 10))
        << i;
  }
}

// In a stream, a special token ends each document; the token after it is not a target.
TEST(Documents, BeginningsAreFoundInAStream) {
  std::vector<int32_t> tokens{5, 6, 9, 7, 9, 9, 4, 3, 9, 2}, targets{6, 9, 7, 9, 9, 4, 3, 9, 2, 8},
      begins(10);
  find_documents(9, 5, {tokens, targets, begins});
  EXPECT_EQ(begins, (std::vector<int32_t>{0, 0, 0, 3, 3, 5, 6, 6, 6, 9}));
  EXPECT_EQ(targets,
            (std::vector<int32_t>{6, 9, kNoTarget, 9, kNoTarget, kNoTarget, 3, 9, kNoTarget, 8}));
  find_documents(-1, 5, {tokens, targets, begins});
  EXPECT_EQ(begins, (std::vector<int32_t>{0, 0, 0, 0, 0, 5, 5, 5, 5, 5}));
}

}  // namespace
}  // namespace ds
