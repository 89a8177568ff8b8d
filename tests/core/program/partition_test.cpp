// Compares with the cases that were recorded from DeepSpeed's own functions in
// tests/data/semantics/partition.json, except those of topologies.
#include "core/program/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <numeric>
#include <regex>
#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds {
namespace {

// Returns the recording. Its list "topology" is not compared, because libds has no axes of
// pipelines.
test::Recording recorded() {
  return {test::semantics_path("partition.json"),
          {"uniform", "balanced", "prefix_sum_inc", "partitioned_tensor", "pipeline_module",
           "topology"}};
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

TEST(Partition, UniformPartsEqualThoseOfDeepSpeed) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("uniform")) {
    EXPECT_EQ(partition_uniform(c.at("num_items").integer(), c.at("num_parts").integer()),
              integers(c.at("parts")));
  }
}

TEST(Partition, BalancedPartsEqualThoseOfDeepSpeed) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("balanced")) {
    const std::vector<double> weights = numbers(c.at("weights")), sums = numbers(c.at("part_sums"));
    const std::vector<int64_t> parts = partition_balanced(weights, c.at("num_parts").integer());
    EXPECT_EQ(parts, integers(c.at("parts")));
    ASSERT_EQ(sums.size() + 1, parts.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_NEAR(std::accumulate(weights.begin() + parts[i], weights.begin() + parts[i + 1], 0.0),
                  sums[i], 1e-12 * sums[i]);
    }
  }
}

TEST(Partition, PrefixSumsEqualThoseOfDeepSpeed) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("prefix_sum_inc"))
    EXPECT_EQ(prefix_sum_inc(numbers(c.at("weights"))), numbers(c.at("result")));
}

// Compares a rank's slice of the elements 0, 1, ... and the metadata that DeepSpeed sends with the
// slice: the number of dimensions, extents, number of parts, rank, and the offset of each part.
TEST(Partition, PartitionedTensorsAreDividedUniformly) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("partitioned_tensor")) {
    SCOPED_TRACE(c.dump());
    const std::vector<int64_t> shape = integers(c.at("shape"));
    const int64_t numel =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    const int64_t parts = c.at("num_parts").integer(), rank = c.at("rank").integer();
    ASSERT_TRUE(rank >= 0 && rank < parts);
    const std::vector<int64_t> cuts = partition_uniform(numel, parts);
    const int64_t begin = cuts[static_cast<size_t>(rank)],
                  end = cuts[static_cast<size_t>(rank) + 1];
    std::vector<int64_t> local(static_cast<size_t>(end - begin));
    std::iota(local.begin(), local.end(), begin);
    EXPECT_EQ(integers(c.at("local")), local);
    std::vector<int64_t> meta{static_cast<int64_t>(shape.size())};
    meta.insert(meta.end(), shape.begin(), shape.end());
    meta.insert(meta.end(), {parts, rank});
    meta.insert(meta.end(), cuts.begin(), cuts.end());
    EXPECT_EQ(integers(c.at("meta")), meta);
  }
}

// Returns the number of parameter elements in a layer such as "Linear:4x8".
int64_t params_of(const std::string& kind, const std::vector<int64_t>& dims) {
  if (kind == "Linear") return dims.at(0) * dims.at(1) + dims.at(1);
  if (kind == "Embedding") return dims.at(0) * dims.at(1);
  if (kind == "LayerNorm") return 2 * dims.at(0);
  if (kind == "Block")
    return params_of("Linear", {dims.at(0), 4 * dims[0]}) +
           params_of("Linear", {4 * dims[0], dims[0]});
  EXPECT_EQ(kind, "ReLU") << "is not known here";
  return 0;
}

// Divides the layers of a pipeline by their weights.
TEST(Partition, PipelineStagesEqualThoseOfDeepSpeed) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("pipeline_module")) {
    SCOPED_TRACE(c.dump());
    std::vector<std::string> kinds;
    std::vector<double> params;
    for (const Json& layer : c.at("layers").array()) {
      const std::string& text = layer.string();
      kinds.push_back(text.substr(0, text.find(':')));
      std::vector<int64_t> dims;
      const std::regex number("[0-9]+");
      for (std::sregex_iterator at(text.begin() + std::ssize(kinds.back()), text.end(), number),
           end;
           at != end; ++at)
        dims.push_back(std::stoll(at->str()));
      params.push_back(static_cast<double>(params_of(kinds.back(), dims)));
    }
    EXPECT_EQ(numbers(c.at("layer_params")), params);
    // Methods are accepted in any case. "type:" is followed by a pattern that is searched for in
    // class names.
    std::string method = c.at("method").string();
    std::transform(method.begin(), method.end(), method.begin(),
                   [](unsigned char one) { return static_cast<char>(std::tolower(one)); });
    std::vector<double> weights = params;
    bool known = method == "uniform" || method == "parameters";
    if (method.starts_with("type:")) {
      const std::regex pattern(method.substr(5), std::regex::icase);
      for (size_t l = 0; l < kinds.size(); ++l)
        weights[l] = std::regex_search(kinds[l], pattern) ? 1 : 0;
      known = std::count(weights.begin(), weights.end(), 1) > 0;
    }
    const test::Record result = c.inside("result");
    ASSERT_EQ(result.has("parts"), known);
    ASSERT_NE(result.has("error"), known);
    const int64_t stages = c.at("stages").integer();
    if (known) {
      EXPECT_EQ(integers(result.at("parts")), method == "uniform"
                                                  ? partition_uniform(std::ssize(kinds), stages)
                                                  : partition_balanced(weights, stages));
    } else {
      EXPECT_TRUE(method == "best" || method == "profile" || method.starts_with("type:")) << method;
      result.told({"message"});
    }
  }
}

TEST(Partition, RefusesZeroParts) {
  EXPECT_THROW(partition_uniform(3, 0), Error);
  EXPECT_THROW(partition_balanced({1, 2}, 0), Error);
}

}  // namespace
}  // namespace ds
