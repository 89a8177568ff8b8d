#include "monitor/run_report.h"

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
#include "monitor/readable_text.h"
#include "support/temp_folder.h"

namespace ds::report_test {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

// Checks that every opened element is closed, in order. Returns the first error, or "".
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
  s.end = "finished";
  s.parameters = 10700000;
  s.ranks = 2;
  s.threads = 1;
  s.processor = "a processor <x>";
  s.overhead = 2 << 20;
  s.facts = {{"text", "3 files & more"}, {"checkpoint", ""}};
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
  s.budget.device = 9 << 20;
  s.spans = {{0,
              {{"step", "step 7", 0, 2000, 0},
               {"comp", "linear <a>", 0, 1000, 0},
               {"comm", "gather", 500, 1500, 64}}},
             {1, {{"step", "step 7", 0, 2000, 0}, {"comp", "linear", 0, 1000, 0}}}};
  s.config = Json::parse(R"({"schema": 1, "config": {"zero": {"stage": 3}, "seed": 1},
                             "origins": {"zero.stage": "config", "seed": "default"}})");
  s.plan_columns = {
      {"ZeRO-3, 2 ranks",
       0.2,
       {{"comp", {{0, 0.1, "forward", "linear <b>"}, {0.1, 0.2, "backward", "linear_dw"}}}},
       {{"device", {{0, 1 << 20}, {0.1, 5 << 20}}, 1 << 20, 6 << 20}}}};
  s.plan_note = "Times assume 50 GFLOP/s & more.";
  s.samples = {{0, "# start", "zq"}, {300, "# start", "int main() { return a < b; }\xff"}};
  return s;
}

TEST(Report, IsOneCompleteDocument) {
  std::string html = report_html(example());
  EXPECT_EQ(unbalanced(html), "");
  for (const char* part :
       {"run &lt;7&gt;", "gpt h384 &amp; more",
        "<dt>Held-out loss</dt><dd>1.5309<small>nats per token; unigram of tokens 3.630",
        "<dt>Parameters</dt><dd>10.7M<small>10,700,000<",
        "<dt>Tokens seen</dt><dd>540k<small>300 steps of 1,800 tokens<",
        "<dt>Training time</dt><dd>1 min 00 s<small>median step 200 ms;",
        "<dt>Tokens per second</dt><dd>9.00k<",
        "<dt>Peak memory</dt><dd>10.0 MiB<small>of one rank: device 5.00 MiB, host 3.00 MiB",
        "<dt>Processor</dt><dd>2 ranks × 1 thread<small>a processor &lt;x&gt;<",
        "<dt>Steps</dt><dd>300<small>finished<",
        "<h2>Loss</h2><p class=\"span\">steps 1 to 300; nats per token</p>", "held-out text",
        "aria-label=\"Loss, steps 1 to 300: training", "bigram 2.86", "unigram 3.63",
        "<h2>Tokens per second</h2><p class=\"span\">steps 1 to 300; all ranks</p>",
        "<h2>Learning rate</h2><p class=\"span\">steps 1 to 300</p>",
        "<h2>Gradient norm</h2><p class=\"span\">steps 1 to 300; before clipping</p>",
        "<h2>Memory against plan</h2><p class=\"span\">rank 0, steps 1 to 300</p>",
        // The width is the share of the budget.
        "width:55.56%\"></i></span><span class=\"value\">5.00 MiB",
        "width:66.67%\"></i></span><span class=\"value\">6.00 MiB",
        "<span class=\"value\">9.00 MiB",
        "<h2>Communication</h2><p class=\"span\">rank 0, steps 1 to 300 with", "all_gather",
        "1.00 GiB, 100 calls", "Communication log", "<td>&lt;world&gt;</td><td>reduce_scatter</td>",
        "<h2>Time per queue</h2><p class=\"span\">step 7, ranks 0 and 1</p>",
        "50 % busy, 50 % overlapped",
        "<h2>Timeline of one step</h2><p class=\"span\">step 7, ranks 0 and 1</p>",
        "linear &lt;a&gt;", "<dt>text</dt><dd>3 files &amp; more</dd>", "zero.stage",
        "<h2>The compiled step</h2><p class=\"span\">one step of one rank, as planned",
        "linear &lt;b&gt;", "Times assume 50 GFLOP/s &amp; more.",
        "text:</p><pre># start</pre><h3>before the first step</h3><pre>zq</pre>",
        "<h3>after step 300</h3>", "a &lt; b; }\xef\xbf\xbd"}) {
    EXPECT_NE(html.find(part), html.npos) << part;
  }
  EXPECT_EQ(html.find("broadcast"), html.npos);
  EXPECT_EQ(html.find("NaN"), html.npos);
  // The page loads nothing from elsewhere.
  for (const char* outside : {"http:", "https:", "src=", "href=", "@import", "url("}) {
    EXPECT_EQ(html.find(outside), html.npos) << outside;
  }
  // Each curve appears once. The curve of tokens per second also shows the time of a step.
  EXPECT_EQ(count_of(html, "data-chart="), 4u);
  EXPECT_EQ(count_of(html, "<svg"), 4u + 3u + 1u);
  EXPECT_EQ(count_of(html, "<svg"), count_of(html, "role=\"img\" aria-label=\""));
  // The given values come first, and the defaults are in a collapsed section after them.
  EXPECT_LT(html.find("<code>zero.stage"), html.find("<details>"));
  EXPECT_GT(html.find("<code>seed"), html.find("<details>"));
}

TEST(Report, ComparesBitsPerByteIfKnown) {
  RunSummary s = example();
  s.baselines.emplace_back("gzip", 2.5);
  s.bits_a_byte = 0.5;
  std::string html = report_html(s);
  for (const char* part :
       {"<dt>Held-out loss</dt><dd>1.5309<small>nats per token</small>",
        "<dt>Bits per byte</dt><dd>0.765<small>of held-out text; unigram of tokens 1.815; bigram "
        "of tokens 1.430; gzip -9 1.250<",
        "and what gzip -9 makes of the held-out text."}) {
    EXPECT_NE(html.find(part), html.npos) << part;
  }
}

TEST(Report, OmitsMissingParts) {
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

TEST(Report, IsWrittenToFiles) {
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
  EXPECT_EQ(spans, 5u);
  EXPECT_THROW(write_report("/nowhere/report.html", s), Error);
}

TEST(Chart, TicksAreRoundNumbersWithinTheRange) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(axis_ticks(0.1, 0.9, 4), (std::vector<double>{0.2, 0.4, 0.6000000000000001, 0.8}));
  EXPECT_TRUE(axis_ticks(1, 1, 5).empty());
  for (double high : {1e-6, 0.37, 3.0, 123.0, 9e9}) {
    for (int wanted = 1; wanted < 12; ++wanted) {
      EXPECT_LE(axis_ticks(0, high, wanted).size(), static_cast<size_t>(wanted) + 1)
          << high << " " << wanted;
      EXPECT_GE(axis_ticks(0, high, wanted).size() * 3, static_cast<size_t>(wanted))
          << high << " " << wanted;
    }
  }
}

TEST(Text, DurationsAreReadable) {
  EXPECT_EQ(time_text(0.0000003), "0.30 us");
  EXPECT_EQ(time_text(0.0415), "41.5 ms");
  EXPECT_EQ(time_text(0.9996), "1.00 s");
  EXPECT_EQ(time_text(59.9), "59.9 s");
  EXPECT_EQ(time_text(59.96), "1 min 00 s");
  EXPECT_EQ(time_text(3599.7), "1 h 00 min");
  EXPECT_EQ(time_text(7500), "2 h 05 min");
}

TEST(Chart, NumbersOfAxesAreShort) {
  EXPECT_EQ(unit_text(15000, Unit::count), "15k");
  EXPECT_EQ(unit_text(-2500000, Unit::count), "-2.5M");
  EXPECT_EQ(unit_text(999, Unit::count), "999");
  EXPECT_EQ(unit_text(15000, Unit::number), "1.5e+04");
  EXPECT_EQ(unit_text(0.0005, Unit::number), "0.0005");
}

// The name of a level is placed where there is room, so that it covers neither another name nor a
// curve.
TEST(Chart, NamesOfLevelsDoNotOverlap) {
  LineChart chart;
  chart.title = "a";
  chart.series = {{"b", 1, {{1, 0}, {2, 5}, {9, 10}}}};
  chart.levels = {{"low", 2.0}, {"high", 2.1}, {"far", 9.9}};
  std::string html = line_chart(chart);
  EXPECT_EQ(count_of(html, "<span class=\"name"), 3u);
  EXPECT_LT(html.find("far 9.9"), html.find("high 2.1"));
  // "far" is placed on the left, because the curve ends at the right; "high" is above its level and
  // "low" below.
  EXPECT_EQ(count_of(html, "<span class=\"name left\""), 1u);
  EXPECT_EQ(count_of(html, "<span class=\"name\""), 1u);
  EXPECT_EQ(count_of(html, "<span class=\"name below\""), 1u);
  EXPECT_NE(html.find("aria-label=\"a, steps 1 to 9: b from 0 to 10\""), html.npos);
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

TEST(Chart, ThinningKeepsGapsAndTheExtremesBesideThem) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 1000; ++i) points.emplace_back(i, i % 7);
  // All of these are in the first of five buckets.
  points[50].second = -5;
  points[60].second = nan;
  points[190].second = 50;
  points[199].second = std::numeric_limits<double>::infinity();
  auto thin = thin_points(points, 5);
  EXPECT_LE(thin.size(), 15u);
  std::vector<double> steps;
  for (const auto& point : thin) steps.push_back(point.first);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  for (double kept : {50, 60, 190}) EXPECT_NE(std::ranges::find(steps, kept), steps.end()) << kept;
  // A bucket without any number keeps its gap.
  for (int i = 400; i < 600; ++i) points[static_cast<size_t>(i)].second = nan;
  thin = thin_points(points, 5);
  EXPECT_TRUE(std::ranges::any_of(thin, [](const auto& point) {
    return point.first >= 400 && point.first < 600 && std::isnan(point.second);
  }));
}

TEST(QueueTime, OverlapAgreesWithAComputationByHand) {
  int64_t s = 1000000000;
  RankSpans spans{{3,
                   {{kStepTrack, "step 1", 0, 9 * s, 0},
                    {"comm", "a", 0, 4 * s, 10},
                    {"comp", "b", 1 * s, 2 * s, 0},
                    {"comp", "c", 3 * s, 6 * s, 0},
                    {"comp", "inside c", 4 * s, 5 * s, 0},
                    {"read", "d", 5 * s, 8 * s, 5},
                    {"read", "e", 7 * s, 9 * s, 6}}}};
  auto times = queue_times(spans);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[0].queue, "comp");
  EXPECT_DOUBLE_EQ(times[0].busy, 4);
  // Hidden are 1 to 2, 3 to 4 and 5 to 6.
  EXPECT_DOUBLE_EQ(times[0].hidden, 3);
  EXPECT_EQ(times[1].queue, "comm");
  EXPECT_DOUBLE_EQ(times[1].busy, 4);
  EXPECT_DOUBLE_EQ(times[1].hidden, 2);
  EXPECT_EQ(times[2].queue, "read");
  EXPECT_DOUBLE_EQ(times[2].busy, 4);
  EXPECT_DOUBLE_EQ(times[2].hidden, 1);
  EXPECT_EQ(times[2].bytes, 11);
  EXPECT_EQ(times[2].rank, 3);
}

TEST(QueueTime, CountsStepsOnly) {
  int64_t s = 1000000000;
  // Steps last from 2 to 4 and from 6 to 8; the work at 5 belongs to an evaluation.
  RankSpans spans{{0,
                   {{kStepTrack, "step 1", 2 * s, 4 * s, 0},
                    {"comp", "a", 0, 3 * s, 0},
                    {"comp", "evaluation", 9 * s / 2, 11 * s / 2, 0},
                    {kStepTrack, "step 2", 6 * s, 8 * s, 0},
                    {"write", "b", 7 * s, 20 * s, 0}}},
                  {1, {{"comp", "without a step", 0, s, 0}}}};
  auto times = queue_times(spans);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_DOUBLE_EQ(times[0].busy, 1);
  EXPECT_DOUBLE_EQ(times[0].steps, 4);
  EXPECT_DOUBLE_EQ(times[1].busy, 1);
  EXPECT_EQ(recorded_steps(spans), "step 1 to step 2");
  TimelineChart lanes = timeline(spans, 4);
  EXPECT_EQ(lanes.step, "step 2");
  EXPECT_DOUBLE_EQ(lanes.seconds, 2);
  EXPECT_EQ(count_of(lanes.html, "<svg"), 2u);
  // Step 2 has no work on the queue comp.
  EXPECT_EQ(count_of(lanes.html, "<rect"), 1u);
  EXPECT_NE(lanes.html.find(R"(x="500.00" width="500.00")"), lanes.html.npos);
}

TEST(QueueTime, TimelineIsBounded) {
  RankSpans spans{{0, {{kStepTrack, "step 1", 0, 100000000, 0}}}};
  for (int64_t i = 0; i < 100000; ++i)
    spans[0].second.push_back({"comp", "x", i * 1000, i * 1000 + 900, 0});
  std::string html = timeline(spans, 4).html;
  EXPECT_EQ(unbalanced(html), "");
  EXPECT_LT(count_of(html, "<rect"), 2000u);
  EXPECT_EQ(timeline({}, 4).html, "");
  EXPECT_EQ(timeline({{0, {}}}, 4).html, "");
  EXPECT_EQ(timeline({{0, {{"comp", "x", 0, 10, 0}}}}, 4).html, "");
  for (int rank = 1; rank < 6; ++rank) spans.emplace_back(rank, spans[0].second);
  EXPECT_EQ(count_of(timeline(spans, 4).html, "<svg"), 4u);
}

}  // namespace
}  // namespace ds::report_test
