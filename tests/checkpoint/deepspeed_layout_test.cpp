// Compares with every layout in tests/data/semantics/zero_flat.json, which was recorded from
// DeepSpeed's own engines.
#include <gtest/gtest.h>

#include "checkpoint/deepspeed/layout.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "support/record.h"
#include "support/semantics.h"

namespace ds {
namespace {

test::Recording recorded() {
  return {test::semantics_path("zero_flat.json"),
          {"stage1_2", "stage3", "reduce_scatter_coalesced"}};
}

std::vector<int64_t> integers(const Json& list) {
  std::vector<int64_t> out;
  for (const Json& value : list.array()) out.push_back(value.integer());
  return out;
}

TEST(DeepSpeedLayout, FlatBuffersEqualThoseOfStages1And2) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("stage1_2")) {
    SCOPED_TRACE(c.dump());
    FlatOptions options{c.at("world").integer(), c.at("round_robin_gradients").boolean(), 1};
    const std::string& type = c.at("dtype").string();
    ASSERT_TRUE(type == "bf16" || type == "fp32") << type;
    if (c.at("parameter_alignment").boolean()) options.align = type == "bf16" ? 8 : 4;
    EXPECT_TRUE(c.at("stage").integer() == 1 || c.at("stage").integer() == 2);
    for (const test::Record& group : c.list("groups")) {
      FlatLayout got = flat_layout(integers(group.at("numel")), options);
      EXPECT_EQ(got.numel, group.at("flat_numel").integer());
      EXPECT_EQ(got.order, integers(group.at("order")));
      EXPECT_EQ(got.offsets, integers(group.at("offsets")));
      const std::vector<test::Record> ranks = group.list("ranks");
      ASSERT_EQ(got.slices.size(), ranks.size());
      for (size_t r = 0; r < ranks.size(); ++r) {
        EXPECT_EQ(std::vector<int64_t>({got.slices[r].begin, got.slices[r].end}),
                  integers(ranks[r].at("range")));
        EXPECT_EQ(got.slices[r].end - got.slices[r].begin, group.at("partition_size").integer());
        EXPECT_EQ(got.slices[r].padding, ranks[r].at("padding").integer());
        EXPECT_EQ(got.slices[r].params, integers(ranks[r].at("params_in_partition")));
        EXPECT_EQ(got.slices[r].first_offset, ranks[r].at("first_offset").integer());
      }
    }
  }
}

TEST(DeepSpeedLayout, ParameterSlicesEqualThoseOfStage3) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("stage3")) {
    SCOPED_TRACE(c.dump());
    EXPECT_EQ(c.at("stage").integer(), 3);
    // Slices are counted in elements, whatever their type.
    EXPECT_TRUE(c.at("dtype").string() == "bf16" || c.at("dtype").string() == "fp32")
        << c.at("dtype").string();
    SliceOptions options;
    options.world = c.at("world").integer();
    if (auto size = c.find("sub_group_size")) options.sub_group_size = size->integer();
    if (auto most = c.find("param_persistence_threshold"))
      options.persistence_threshold = most->integer();
    if (auto most = c.find("model_persistence_threshold"))
      options.model_persistence_threshold = most->integer();
    std::vector<std::vector<int64_t>> groups;
    for (const Json& group : c.at("groups").array()) groups.push_back(integers(group));
    SlicedLayout got = sliced_layout(groups, options);
    ASSERT_EQ(static_cast<int64_t>(c.at("ranks").array().size()), options.world);
    for (int64_t r = 0; r < options.world; ++r) {
      const Json::Array& of_rank = c.at("ranks").array()[static_cast<size_t>(r)].array();
      ASSERT_EQ(of_rank.size(), groups.size());
      for (size_t g = 0; g < groups.size(); ++g) {
        ASSERT_EQ(of_rank[g].array().size(), groups[g].size());
        for (size_t p = 0; p < groups[g].size(); ++p) {
          const test::Record want(of_rank[g].array()[p], "a slice");
          const SlicedParam& param = got.groups[g][p];
          EXPECT_EQ(param.numel, want.at("numel").integer());
          EXPECT_EQ(param.partition_numel, want.at("partition_numel").integer());
          EXPECT_EQ(param.aligned_numel, want.at("aligned_numel").integer());
          EXPECT_EQ(param.begin(r), want.at("start").integer());
          EXPECT_EQ(param.valid(r), want.at("valid").integer());
          EXPECT_EQ(param.persistent, want.at("persistent").boolean());
        }
      }
    }
    const std::vector<test::Record> subs = c.list("sub_groups");
    ASSERT_EQ(c.at("sub_group_flat_numel").array().size(), subs.size());
    ASSERT_EQ(got.sub_groups.size(), subs.size());
    for (size_t s = 0; s < subs.size(); ++s) {
      EXPECT_EQ(got.sub_groups[s].group, subs[s].at("group").integer());
      EXPECT_EQ(got.sub_groups[s].params, integers(subs[s].at("params")));
      EXPECT_EQ(got.sub_groups[s].numel, c.at("sub_group_flat_numel").array()[s].integer());
    }
  }
}

// Together, the ranks' slices of all tensors are the mean over ranks; the padding of each rank is
// not included.
TEST(DeepSpeedLayout, CoalescedReduceScatterIsTheMean) {
  const test::Recording all = recorded();
  for (const test::Record& c : all.list("reduce_scatter_coalesced")) {
    int64_t world = c.at("world").integer();
    // The mean over ranks of r + 1, by which rank r multiplies its values.
    double scale = static_cast<double>(world + 1) / 2;
    std::vector<int64_t> numel;
    for (const Json& shape : c.at("shapes").array()) {
      int64_t count = 1;
      for (int64_t extent : integers(shape)) count *= extent;
      numel.push_back(count);
    }
    SliceOptions options;
    options.world = world;
    SlicedLayout layout = sliced_layout({numel}, options);
    ASSERT_EQ(static_cast<int64_t>(c.at("result").array().size()), world);
    for (int64_t r = 0; r < world; ++r) {
      ASSERT_EQ(c.at("result").array()[static_cast<size_t>(r)].array().size(), numel.size());
      for (size_t t = 0; t < numel.size(); ++t) {
        const SlicedParam& param = layout.groups[0][t];
        const auto& want = c.at("result").array().at(static_cast<size_t>(r)).array().at(t).array();
        ASSERT_EQ(static_cast<int64_t>(want.size()), param.valid(r));
        for (int64_t i = 0; i < param.valid(r); ++i) {
          double element =
              static_cast<double>(param.begin(r) + i + 100 * static_cast<int64_t>(t) + 1);
          EXPECT_EQ(want[static_cast<size_t>(i)].number(), element * scale);
        }
      }
    }
  }
}

TEST(DeepSpeedLayout, RefusesBadSizes) {
  EXPECT_THROW(flat_layout({1}, {0, false, 1}), Error);
  EXPECT_THROW(flat_layout({1}, {1, false, 0}), Error);
  EXPECT_THROW(flat_layout({-1}, {1, false, 1}), Error);
}

}  // namespace
}  // namespace ds
