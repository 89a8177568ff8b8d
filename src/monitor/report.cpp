#include "monitor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "io/file.h"
#include "monitor/chart.h"
#include "monitor/queue_time.h"
#include "monitor/report_style.h"
#include "monitor/text.h"

namespace ds {
namespace {

using Points = std::vector<std::pair<double, double>>;

Points points_of(const std::vector<StepRecord>& steps, double StepRecord::*value) {
  Points points;
  for (const StepRecord& r : steps) points.emplace_back(static_cast<double>(r.step), r.*value);
  return points;
}

std::string card(const std::string& content, bool wide = false) {
  if (content.empty()) return "";
  return fmt::format("<section class=\"card{}\">{}</section>\n", wide ? " wide" : "", content);
}

std::string note(const std::string& text) { return "<p class=\"note\">" + html_text(text) + "</p>"; }

std::string facts(const RunSummary& summary) {
  std::string html;
  for (const auto& [name, value] : summary.facts) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", html_text(name), html_text(value));
  }
  return html.empty() ? html : "<dl class=\"facts\">" + html + "</dl>\n";
}

std::string loss_chart(const RunSummary& summary) {
  LineChart chart;
  chart.title = "Loss";
  chart.x_name = "step";
  chart.width = 1000;
  chart.height = 340;
  Points train = points_of(summary.steps, &StepRecord::loss);
  if (train.size() > 60) {
    double span = std::max(10.0, static_cast<double>(train.size()) / 50);
    chart.series.push_back({"each step", 1, train, true, false});
    chart.series.push_back({fmt::format("training, mean over about {:.0f} steps", span), 1,
                            smooth_points(train, span), false, false});
  } else {
    chart.series.push_back({"training", 1, train, false, false});
  }
  Points heldout;
  for (const EvalRecord& r : summary.evals) heldout.emplace_back(static_cast<double>(r.step), r.loss);
  if (!heldout.empty()) chart.series.push_back({"held-out text", 2, heldout, false, true});
  chart.levels = summary.baselines;
  std::string html = line_chart(chart);
  return html.empty()
             ? html
             : html +
                   note("nats per token; dashed: simple models of the training text, on the held-out text");
}

std::string step_chart(const RunSummary& summary, const std::string& title, double StepRecord::*value,
                       Unit unit, int colour) {
  LineChart chart;
  chart.title = title;
  chart.x_name = "step";
  chart.unit = unit;
  chart.from_zero = true;
  chart.series.push_back({title, colour, points_of(summary.steps, value), false, false});
  return line_chart(chart);
}

std::string memory_card(const RunSummary& summary) {
  TierBytes peak;
  for (const StepRecord& r : summary.steps) {
    peak.device = std::max(peak.device, r.bytes.device);
    peak.host = std::max(peak.host, r.bytes.host);
    peak.nvme = std::max(peak.nvme, r.bytes.nvme);
  }
  std::vector<Bar> bars;
  auto add = [&](const std::string& tier, int64_t used, int64_t plan, int colour) {
    if (used == 0 && plan == 0) return;
    bars.push_back({tier, static_cast<double>(used), static_cast<double>(used), static_cast<double>(plan),
                    bytes_text(used) + " of " + bytes_text(plan), colour});
  };
  add("device", peak.device, summary.plan.device, 1);
  add("host", peak.host, summary.plan.host, 3);
  add("nvme", peak.nvme, summary.plan.nvme, 5);
  if (bars.empty()) return "";
  return "<h2>Memory of one rank</h2>" + bar_chart(bars) + note("bar: most bytes allocated; line: the plan");
}

std::string communication_card(const RunSummary& summary) {
  std::vector<Bar> bars;
  for (const CommRecord& r : summary.comm) {
    if (r.calls == 0) continue;
    auto bytes = static_cast<double>(r.bytes);
    bars.push_back(
        {r.operation, bytes, bytes, 0,
         fmt::format("{}, {} calls", bytes_text(r.bytes), count_text(static_cast<double>(r.calls))), 2});
  }
  if (bars.empty()) return "";
  return "<h2>Communication of one rank</h2>" + bar_chart(bars) + note("bytes received from other ranks");
}

std::string comm_log_card(const RunSummary& summary) {
  if (summary.comm_times.empty()) return "";
  std::string rows;
  for (const std::vector<std::string>& line : summary.comm_times) {
    const char* cell = rows.empty() ? "th" : "td";
    rows += "<tr>";
    for (const std::string& text : line) rows += fmt::format("<{0}>{1}</{0}>", cell, html_text(text));
    rows += "</tr>\n";
  }
  return "<h2>Communication log of rank 0</h2><table>" + rows + "</table>" +
         note(
             "waited: longer than the rank that returned soonest, call by call; slowest: the rank that the "
             "others waited for");
}

std::string queue_card(const RunSummary& summary) {
  std::vector<Bar> bars;
  for (const QueueTime& t : queue_times(summary.spans)) {
    bars.push_back(
        {fmt::format("rank {} {}", t.rank, t.queue), t.busy, t.hidden, 0,
         fmt::format("{:.3g} s, {:.0f}% overlapped", t.busy, t.busy > 0 ? 100 * t.hidden / t.busy : 0),
         queue_colour(t.queue)});
  }
  if (bars.empty()) return "";
  return "<h2>Time per queue</h2>" + bar_chart(bars, 1000) +
         note("full colour: while the rank computed at the same time (comp: while any other queue was busy)");
}

std::string timeline_card(const RunSummary& summary) {
  std::string svg = timeline(summary.spans, 1000);
  return svg.empty() ? svg
                     : "<h2>Queues in the last part of the run</h2>" + svg + note("all of it: trace.json");
}

// Rows of nested objects by key path. origins: key path -> where the value came from, or null.
void config_rows(const Json& value, const std::string& path, const Json* origins, std::string& rows) {
  if (value.is_object()) {
    for (const auto& [name, item] : value.object()) {
      config_rows(item, path.empty() ? name : path + "." + name, origins, rows);
    }
    return;
  }
  const Json* origin = origins ? origins->find(path) : nullptr;
  std::string from = origin && origin->is_string() ? html_text(origin->string()) : "";
  rows +=
      fmt::format("<tr class=\"{0}\"><td><code>{1}</code></td><td><code>{2}</code></td><td>{0}</td></tr>\n",
                  from, html_text(path), html_text(value.dump()));
}

std::string config_card(const RunSummary& summary) {
  const Json& document = summary.config;
  if (!document.is_object()) return "";
  const Json* values = document.find("config");
  const Json* origins = document.find("origins");
  bool effective = values && origins && values->is_object() && origins->is_object();
  std::string rows;
  config_rows(effective ? *values : document, "", effective ? origins : nullptr, rows);
  return "<h2>Configuration</h2><table><tr><th>key</th><th>value</th><th>origin</th></tr>\n" + rows +
         "</table>";
}

std::string sample_card(const RunSummary& summary) {
  if (summary.sample.empty()) return "";
  return "<h2>Sample</h2><pre>" + html_text(summary.sample) + "</pre>";
}

}  // namespace

std::string report_html(const RunSummary& summary) {
  std::string title = html_text(summary.title);
  std::string html = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  html += "<meta name=\"viewport\" content=\"width=device-width\">\n<title>" + title + "</title>\n<style>";
  html += report_style;
  html += "</style></head>\n<body><main>\n<h1>" + title + "</h1>\n";
  html += "<p class=\"key\">" + html_text(summary.numerics_key) + "</p>\n" + facts(summary);
  html += "<div class=\"cards\">\n" + card(loss_chart(summary), true);
  html += card(step_chart(summary, "Tokens per second", &StepRecord::tokens_per_second, Unit::count, 3));
  html += card(step_chart(summary, "Seconds per step", &StepRecord::seconds, Unit::number, 5));
  html += card(step_chart(summary, "Learning rate", &StepRecord::lr, Unit::scientific, 4));
  html += card(step_chart(summary, "Gradient norm before clipping", &StepRecord::grad_norm, Unit::number, 6));
  html += card(memory_card(summary)) + card(communication_card(summary));
  html += card(comm_log_card(summary), true);
  html += card(queue_card(summary), true) + card(timeline_card(summary), true);
  html += card(sample_card(summary), true) + card(config_card(summary), true);
  html += "</div>\n</main>\n<script>";
  html += report_script;
  return html + "</script>\n</body></html>\n";
}

void write_report(const std::string& path, const RunSummary& summary) {
  write_file_atomic(path, report_html(summary));
}

void write_trace(const std::string& path, const RankSpans& spans) {
  write_file_atomic(path, trace_json(spans));
}

}  // namespace ds
