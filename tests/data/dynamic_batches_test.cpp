// Compares groups of documents and learning rates with those recorded from DeepSpeed for the same
// lengths (tests/data/dynamic_batches.json).
#include "data/dynamic_batches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds {
namespace {

test::Recording recorded() {
  return {test::data_path("dynamic_batches.json"), {"batches", "rates"}};
}

std::vector<int64_t> integers(const Json& list) {
  std::vector<int64_t> out;
  for (const Json& one : list.array()) out.push_back(one.integer());
  return out;
}

TEST(DynamicBatches, GroupsEqualThoseOfDeepSpeed) {
  const test::Recording all = recorded();
  int compared = 0;
  for (const test::Record& c : all.list("batches")) {
    DynamicBatchOptions options;
    options.max_tokens = c.at("max_tokens").integer();
    options.least = c.at("min_batch_size").integer();
    options.most = c.at("max_batch_size").is_null() ? 0 : c.at("max_batch_size").integer();
    options.order = c.at("order").string();
    const int64_t each = c.at("groups").integer();
    std::vector<int64_t> lengths = integers(c.at("lengths"));
    DynamicBatches batches(lengths, options);
    const Json::Array& groups = c.at("microbatches").array();
    const int64_t steps = batches.groups() / each;
    ASSERT_EQ(steps * each, static_cast<int64_t>(groups.size())) << c.dump();
    const std::vector<int64_t> sizes = integers(c.at("sizes"));
    ASSERT_EQ(static_cast<int64_t>(sizes.size()), steps);
    int64_t documents = 0, next = 0;
    // The second epoch repeats the first.
    for (int64_t step = 0; step < 2 * steps; ++step) {
      const int64_t first = batches.first_of_step(next, each), at = step % steps * each;
      EXPECT_EQ(first % batches.groups(), at);
      EXPECT_EQ(batches.documents(first, each), sizes[static_cast<size_t>(step % steps)]);
      if (step < steps) documents += batches.documents(first, each);
      for (int64_t g = 0; g < each; ++g, ++compared) {
        auto group = batches.group(first + g);
        EXPECT_EQ(std::vector<int64_t>(group.begin(), group.end()),
                  integers(groups[static_cast<size_t>(at + g)]))
            << c.dump();
      }
      next = first + each;
    }
    EXPECT_EQ(batches.left_out(each), static_cast<int64_t>(lengths.size()) - documents);
  }
  EXPECT_GT(compared, 40);
}

TEST(DynamicBatches, RatesEqualThoseOfDeepSpeed) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("rates")) {
    const std::string& method = c.at("method").string();
    EXPECT_TRUE(method == "linear" || method == "sqrt" || method == "none") << method;
    EXPECT_DOUBLE_EQ(
        lr_factor(c.at("method").string(), c.at("documents").integer(), c.at("base").integer()),
        c.at("lr").number())
        << c.dump();
  }
}

TEST(DynamicBatches, ARandomOrderHasAllDocuments) {
  std::vector<int64_t> lengths(50, 3);
  auto drawn = [&](uint64_t seed) {
    DynamicBatches batches(lengths, {.max_tokens = 9, .order = "random", .seed = seed});
    std::vector<int64_t> out;
    for (int64_t g = 0; g < batches.groups(); ++g) {
      auto group = batches.group(g);
      out.insert(out.end(), group.begin(), group.end());
    }
    return out;
  };
  std::vector<int64_t> one = drawn(1), again = drawn(1), other = drawn(2);
  EXPECT_EQ(one, again);
  EXPECT_NE(one, other);
  EXPECT_EQ(one.size(), 49u);
  std::sort(one.begin(), one.end());
  EXPECT_EQ(std::unique(one.begin(), one.end()), one.end());
}

TEST(DynamicBatches, DocumentsThatNeverFitAreLeftOut) {
  EXPECT_EQ(DynamicBatches({}, {.max_tokens = 9}).groups(), 0);
  std::vector<int64_t> long_ones{10, 11, 12};
  DynamicBatches none(long_ones, {.max_tokens = 9});
  EXPECT_EQ(none.groups(), 0);
  EXPECT_EQ(none.left_out(1), 3);
}

}  // namespace
}  // namespace ds
