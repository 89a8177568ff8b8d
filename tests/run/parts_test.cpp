#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "run/chart.h"
#include "run/report.h"
#include "run/setup.h"

namespace ds {
namespace {

TEST(run_parts, merge_patch_follows_rfc_7396) {
  Json document = Json::parse(R"({"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 5})");
  merge_patch(document,
              Json::parse(R"({"a": {"b": 9, "c": null, "f": {"g": null, "h": 1}}, "d": [3], "i": 0})"));
  EXPECT_EQ(document.dump(),
            Json::parse(R"({"a": {"b": 9, "f": {"h": 1}}, "d": [3], "e": 5, "i": 0})").dump());
}

TEST(run_parts, queue_times_count_overlap) {
  std::map<std::string, QueueTime> times = queue_times({{"compute", "a", 0, 1000000000, 0},
                                                        {"read", "b", 500000000, 1500000000, 0},
                                                        {"compute", "c", 1500000000, 2000000000, 0}});
  EXPECT_DOUBLE_EQ(times["compute"].busy, 1.5);
  EXPECT_DOUBLE_EQ(times["compute"].overlapped, 0.5);
  EXPECT_DOUBLE_EQ(times["read"].busy, 1.0);
  EXPECT_DOUBLE_EQ(times["read"].overlapped, 0.5);
}

TEST(run_parts, charts_leave_out_what_is_not_finite) {
  double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(line_chart("t", "x", "y", {{"s", "red", {{1, nan}}}}), "");
  std::string svg = line_chart("a<b", "x", "y", {{"s", "red", {{1, 2}, {2, nan}, {3, 4}}, true}});
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

}  // namespace
}  // namespace ds
