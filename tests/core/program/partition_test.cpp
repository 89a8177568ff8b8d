// Every case that DeepSpeed's own functions recorded in tests/data/semantics/partition.json.
#include "core/program/partition.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/base/error.h"
#include "core/base/json.h"

namespace ds {
namespace {

Json recorded() {
  std::ifstream file(DS_SOURCE_DIR "/tests/data/semantics/partition.json");
  return Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

std::vector<int64_t> integers(const Json& list) {
  std::vector<int64_t> out;
  for (const Json& value : list.array()) out.push_back(value.integer());
  return out;
}

std::vector<double> numbers(const Json& list) {
  std::vector<double> out;
  for (const Json& value : list.array()) out.push_back(value.number());
  return out;
}

TEST(Partition, UniformAsDeepSpeed) {
  Json cases = recorded();
  ASSERT_GE(cases.at("uniform").array().size(), 8u);
  for (const Json& c : cases.at("uniform").array()) {
    EXPECT_EQ(partition_uniform(c.at("num_items").integer(), c.at("num_parts").integer()),
              integers(c.at("parts")));
  }
}

TEST(Partition, BalancedAsDeepSpeed) {
  Json cases = recorded();
  ASSERT_GE(cases.at("balanced").array().size(), 13u);
  for (const Json& c : cases.at("balanced").array()) {
    EXPECT_EQ(partition_balanced(numbers(c.at("weights")), c.at("num_parts").integer()),
              integers(c.at("parts")));
  }
}

TEST(Partition, PrefixSumsAsDeepSpeed) {
  Json cases = recorded();
  ASSERT_GE(cases.at("prefix_sum_inc").array().size(), 4u);
  for (const Json& c : cases.at("prefix_sum_inc").array()) {
    EXPECT_EQ(prefix_sum_inc(numbers(c.at("weights"))), numbers(c.at("result")));
  }
}

TEST(Partition, RefusesNoParts) {
  EXPECT_THROW(partition_uniform(3, 0), Error);
  EXPECT_THROW(partition_balanced({1, 2}, 0), Error);
}

}  // namespace
}  // namespace ds
