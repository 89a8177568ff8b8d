// Every case that DeepSpeed's own functions recorded in tests/data/semantics/partition.json.
#include "core/program/partition.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/base/error.h"
#include "core/base/json.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds {
namespace {

// libds has no pipelines and no partitioned tensors to compare the last three with.
test::Recording recorded() {
  return {test::semantics_path("partition.json"),
          {"uniform", "balanced", "prefix_sum_inc", "partitioned_tensor", "pipeline_module", "topology"}};
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
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("uniform")) {
    EXPECT_EQ(partition_uniform(c.at("num_items").integer(), c.at("num_parts").integer()),
              integers(c.at("parts")));
  }
}

TEST(Partition, BalancedAsDeepSpeed) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("balanced")) {
    const std::vector<double> weights = numbers(c.at("weights")), sums = numbers(c.at("part_sums"));
    const std::vector<int64_t> parts = partition_balanced(weights, c.at("num_parts").integer());
    EXPECT_EQ(parts, integers(c.at("parts")));
    ASSERT_EQ(sums.size() + 1, parts.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_NEAR(std::accumulate(weights.begin() + parts[i], weights.begin() + parts[i + 1], 0.0), sums[i],
                  1e-12 * sums[i]);
    }
  }
}

TEST(Partition, PrefixSumsAsDeepSpeed) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("prefix_sum_inc"))
    EXPECT_EQ(prefix_sum_inc(numbers(c.at("weights"))), numbers(c.at("result")));
}

TEST(Partition, RefusesNoParts) {
  EXPECT_THROW(partition_uniform(3, 0), Error);
  EXPECT_THROW(partition_balanced({1, 2}, 0), Error);
}

}  // namespace
}  // namespace ds
