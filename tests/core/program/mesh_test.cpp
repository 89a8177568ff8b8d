#include "core/program/mesh.h"

#include <gtest/gtest.h>

#include <set>

#include "core/program/levels.h"
#include "support/errors.h"

namespace ds::test {
namespace {

TEST(Mesh, OneAxisIsData) {
  Mesh mesh(6);
  EXPECT_EQ(mesh.name(), "data:6");
  EXPECT_EQ(mesh.ranks(), 6);
  EXPECT_EQ(mesh.data_group(), (RankGroup{6, 1}));
  EXPECT_EQ(mesh.coordinate(4, "data"), 4);
  EXPECT_EQ(mesh.coordinate(4, "tensor"), 0);
  EXPECT_EQ(mesh.size("tensor"), 1);
  EXPECT_EQ(mesh.leaf(3, 5), 23);
  EXPECT_EQ(Mesh(), Mesh(1));
}

TEST(Mesh, TheFirstAxisVariesFastest) {
  Mesh mesh({{"tensor", 2}, {"data", 3}, {"pipe", 2}});
  EXPECT_EQ(mesh.ranks(), 12);
  EXPECT_EQ(mesh.group({"tensor"}), (RankGroup{2, 1}));
  EXPECT_EQ(mesh.group({"data"}), (RankGroup{3, 2}));
  EXPECT_EQ(mesh.group({"pipe"}), (RankGroup{2, 6}));
  EXPECT_EQ(mesh.group({"data", "tensor"}), (RankGroup{6, 1}));
  EXPECT_EQ(mesh.group({"data", "pipe"}), (RankGroup{6, 2}));
  EXPECT_EQ(mesh.group({}), (RankGroup{1, 1}));
  std::set<std::tuple<int, int, int>> all;
  for (int r = 0; r < 12; ++r) {
    int t = mesh.coordinate(r, "tensor"), d = mesh.coordinate(r, "data"),
        p = mesh.coordinate(r, "pipe");
    EXPECT_EQ(t + 2 * (d + 3 * p), r);
    EXPECT_EQ(mesh.leaf(4, r), 12 + d);
    all.insert({t, d, p});
  }
  EXPECT_EQ(all.size(), 12U);
  EXPECT_EQ(Mesh::parse(mesh.name()), mesh);
}

TEST(Mesh, InvalidMeshesAreRefused) {
  auto refused = [](auto&& body) { return message_of(body, DS_ERROR_INVALID_ARGUMENT); };
  Mesh mesh({{"tensor", 2}, {"data", 3}, {"pipe", 2}});
  EXPECT_EQ(refused([&] {
              mesh.group({"tensor", "pipe"});
            }),
            "mesh tensor:2,data:3,pipe:2 has other axes between tensor and pipe");
  EXPECT_EQ(refused([] {
              Mesh({{"data", 0}});
            }),
            "mesh axis 'data' must have at least one rank, got 0");
  EXPECT_EQ(refused([] { Mesh({{"data", 2}, {"data", 2}}); }), "mesh axis 'data' appears twice");
  EXPECT_EQ(refused([] {
              Mesh({{"data", 1 << 20}, {"pipe", 1 << 20}});
            }),
            "a mesh of 1099511627776 ranks is too large");
  EXPECT_EQ(refused([] { Mesh::parse("data=2"); }),
            "a mesh axis must be like data:4, got 'data=2'");
}

// If the ranks of a group are not neighbours, its levels have strides, and parts are numbered as if
// the ranks were neighbours.
TEST(Mesh, LevelsHaveStrides) {
  RankLevels plain = RankLevels::of_blocks({2, 6}), apart = RankLevels::of_blocks({2, 6}, 4);
  EXPECT_EQ(apart.group(0), (RankGroup{2, 4}));
  EXPECT_EQ(apart.group(1), (RankGroup{3, 8}));
  EXPECT_EQ(apart.ranks(), 6);
  for (int cut = 0; cut <= 2; ++cut) {
    for (int r = 0; r < 24; ++r) EXPECT_EQ(apart.part_of(r, cut), plain.part_of(r / 4, cut));
    for (int part = 0; part < plain.ways(cut); ++part)
      EXPECT_EQ(apart.holder(part, cut), plain.holder(part, cut));
  }
}

}  // namespace
}  // namespace ds::test
