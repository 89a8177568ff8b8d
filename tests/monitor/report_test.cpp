#include "monitor/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "monitor/chart.h"
#include "monitor/queue_time.h"
#include "support/temp_folder.h"

namespace ds {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

// Every element that is opened is closed, in order. Returns the first complaint.
std::string unbalanced(const std::string& html) {
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != html.npos; at = html.find('<', at + 1)) {
    size_t end = html.find('>', at);
    if (end == html.npos) return "no > after " + html.substr(at, 30);
    std::string tag = html.substr(at + 1, end - at - 1);
    std::string name = tag.substr(0, tag.find_first_of(" \n/", tag[0] == '/' ? 1 : 0));
    if (tag[0] == '!' || tag.back() == '/' || name == "meta") continue;
    if (tag[0] != '/') {
      open.push_back(name);
      if (name == "script" || name == "style") at = html.find("</" + name, end) - 1;
    } else if (open.empty() || "/" + open.back() != name) {
      return "unexpected <" + tag + ">" + (open.empty() ? "" : " in " + open.back());
    } else {
      open.pop_back();
    }
  }
  return open.empty() ? "" : "open: " + open.back();
}

RunSummary example() {
  RunSummary s;
  s.title = "run <7>";
  s.numerics_key = "gpt h384 & more";
  s.facts = {{"ranks", "2"}, {"parameters", "10.7M"}};
  for (int64_t i = 1; i <= 300; ++i) {
    double x = static_cast<double>(i);
    s.steps.push_back({i,
                       1.2 + 4 / std::sqrt(x),
                       1e-3 * std::min(1.0, x / 50),
                       1 + 1 / x,
                       9000,
                       0.2,
                       {5 << 20, 3 << 20, 1 << 20}});
    if (i % 50 == 0) s.evals.push_back({i, 1.3 + 4 / std::sqrt(x)});
  }
  s.baselines = {{"unigram", 3.63}, {"bigram", 2.86}};
  s.plan = {6 << 20, 3 << 20, 1 << 20};
  s.comm = {{"all_gather", 100, 1 << 30}, {"broadcast", 0, 0}};
  s.comm_times = {{"group", "operation"}, {"<world>", "reduce_scatter"}};
  s.spans = {{0, {{"comp", "linear <a>", 0, 1000, 0}, {"comm", "gather", 500, 1500, 64}}},
             {1, {{"comp", "linear", 0, 1000, 0}}}};
  s.config = Json::parse(R"({"schema": 1, "config": {"zero": {"stage": 3}, "seed": 1},
                             "origins": {"zero.stage": "config", "seed": "default"}})");
  s.sample = "int main() { return a < b; }\xff";
  return s;
}

TEST(Report, IsOneCompleteDocument) {
  std::string html = report_html(example());
  EXPECT_EQ(unbalanced(html), "");
  for (const char* part : {"run &lt;7&gt;",
                           "gpt h384 &amp; more",
                           "10.7M",
                           "Loss",
                           "held-out text",
                           "bigram 2.86",
                           "unigram 3.63",
                           "Tokens per second",
                           "Learning rate",
                           "Gradient norm",
                           "Memory of one rank",
                           "5.00 MiB of 6.00 MiB",
                           "all_gather",
                           "1.00 GiB, 100 calls",
                           "Communication log",
                           "<td>&lt;world&gt;</td><td>reduce_scatter</td>",
                           "rank 1 comp",
                           "50% overlapped",
                           "linear &lt;a&gt;",
                           "zero.stage",
                           "a &lt; b; }\xef\xbf\xbd"}) {
    EXPECT_NE(html.find(part), html.npos) << part;
  }
  EXPECT_EQ(html.find("broadcast"), html.npos);
  EXPECT_EQ(html.find("NaN"), html.npos);
  // Nothing is fetched from elsewhere.
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url("}) {
    EXPECT_EQ(html.find(outside), html.npos) << outside;
  }
  EXPECT_EQ(count_of(html, "<svg"), 5u + 4u);
  EXPECT_NE(html.find("<tr class=\"default\"><td><code>seed"), html.npos);
}

TEST(Report, LeavesOutWhatDoesNotExist) {
  RunSummary empty;
  std::string html = report_html(empty);
  EXPECT_EQ(unbalanced(html), "");
  EXPECT_EQ(count_of(html, "<svg"), 0u);
  EXPECT_EQ(count_of(html, "<section"), 0u);
  RunSummary odd = example();
  for (auto& r : odd.steps) r.loss = r.grad_norm = nan;
  odd.steps[3].loss = std::numeric_limits<double>::infinity();
  odd.baselines = {{"none", nan}};
  odd.config = Json(3);
  html = report_html(odd);
  EXPECT_EQ(unbalanced(html), "");
  EXPECT_EQ(html.find("nan"), html.npos);
  EXPECT_EQ(html.find("inf"), html.npos);
  RunSummary one = example();
  one.steps.resize(1);
  EXPECT_EQ(unbalanced(report_html(one)), "");
}

TEST(Report, WritesFiles) {
  test::TempFolder folder;
  RunSummary s = example();
  write_report(folder / "report.html", s);
  write_trace(folder / "trace.json", s.spans);
  std::ostringstream html, trace;
  html << std::ifstream(folder / "report.html").rdbuf();
  trace << std::ifstream(folder / "trace.json").rdbuf();
  EXPECT_EQ(html.str(), report_html(s));
  size_t spans = 0;
  Json document = Json::parse(trace.str());
  for (const Json& e : document.at("traceEvents").array()) spans += e.at("ph").string() == "X";
  EXPECT_EQ(spans, 3u);
  EXPECT_THROW(write_report("/nowhere/report.html", s), Error);
}

TEST(Chart, Ticks) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(0.1, 0.9, 4), (std::vector<double>{0.2, 0.4, 0.6000000000000001, 0.8}));
  EXPECT_TRUE(axis_ticks(1, 1, 5).empty());
  for (double high : {1e-6, 0.37, 3.0, 123.0, 9e9}) {
    for (int wanted = 1; wanted < 12; ++wanted) {
      EXPECT_LE(axis_ticks(0, high, wanted).size(), static_cast<size_t>(wanted) + 1) << high << " " << wanted;
      EXPECT_GE(axis_ticks(0, high, wanted).size() * 3, static_cast<size_t>(wanted)) << high << " " << wanted;
    }
  }
}

TEST(Chart, ThinningKeepsExtremes) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 10000; ++i) points.emplace_back(i, std::sin(i * 0.01));
  points[5555].second = 40;
  points[1234].second = -30;
  auto thin = thin_points(points, 100);
  EXPECT_LE(thin.size(), 200u);
  EXPECT_NE(std::find(thin.begin(), thin.end(), points[5555]), thin.end());
  EXPECT_NE(std::find(thin.begin(), thin.end(), points[1234]), thin.end());
  EXPECT_TRUE(std::is_sorted(thin.begin(), thin.end()));
  EXPECT_EQ(thin_points({{1, 2}, {2, 3}}, 10).size(), 2u);
  auto smooth = smooth_points({{1, nan}, {2, 4}, {3, 8}}, 3);
  EXPECT_TRUE(std::isnan(smooth[0].second));
  EXPECT_EQ(smooth[1].second, 4);
  EXPECT_EQ(smooth[2].second, 6);
}

TEST(QueueTime, OverlapByHand) {
  int64_t s = 1000000000;
  RankSpans spans{{3,
                   {{"comm", "a", 0, 4 * s, 10},
                    {"comp", "b", 1 * s, 2 * s, 0},
                    {"comp", "c", 3 * s, 6 * s, 0},
                    {"comp", "inside c", 4 * s, 5 * s, 0},
                    {"read", "d", 5 * s, 8 * s, 5},
                    {"read", "e", 7 * s, 9 * s, 6}}}};
  auto times = queue_times(spans);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].queue, "comp");
  EXPECT_DOUBLE_EQ(times[0].busy, 4);
  EXPECT_DOUBLE_EQ(times[0].hidden, 3);  // 1-2, 3-4, 5-6
  EXPECT_EQ(times[1].queue, "comm");
  EXPECT_DOUBLE_EQ(times[1].busy, 4);
  EXPECT_DOUBLE_EQ(times[1].hidden, 2);
  EXPECT_EQ(times[2].queue, "read");
  EXPECT_DOUBLE_EQ(times[2].busy, 4);
  EXPECT_DOUBLE_EQ(times[2].hidden, 1);
  EXPECT_EQ(times[2].bytes, 11);
  EXPECT_EQ(times[2].rank, 3);
}

TEST(QueueTime, TimelineIsBounded) {
  RankSpans spans{{0, {}}};
  for (int64_t i = 0; i < 100000; ++i) spans[0].second.push_back({"comp", "x", i * 1000, i * 1000 + 900, 0});
  std::string svg = timeline(spans, 1000);
  EXPECT_EQ(unbalanced(svg), "");
  EXPECT_LT(count_of(svg, "<rect"), 2000u);
  EXPECT_NE(svg.find("20 ms"), svg.npos);  // the last 20000 spans
  EXPECT_EQ(timeline({}, 1000), "");
  EXPECT_EQ(timeline({{0, {}}}, 1000), "");
}

}  // namespace
}  // namespace ds
