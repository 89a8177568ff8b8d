#include "run/setup.h"

#include <gtest/gtest.h>

namespace ds {
namespace {

TEST(merge_patch, FollowsRfc7396) {
  Json document = Json::parse(R"({"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 5})");
  merge_patch(
      document,
      Json::parse(R"({"a": {"b": 9, "c": null, "f": {"g": null, "h": 1}}, "d": [3], "i": 0})"));
  EXPECT_EQ(document.dump(),
            Json::parse(R"({"a": {"b": 9, "f": {"h": 1}}, "d": [3], "e": 5, "i": 0})").dump());
}

}  // namespace
}  // namespace ds
