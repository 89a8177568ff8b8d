#include "run/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "monitor/text.h"
#include "run/chart.h"

namespace ds {
namespace {

constexpr const char* kHead =
    "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>libds run</title><style>"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "svg{max-width:100%;height:auto;font-size:11px;fill:#444;display:block;margin:1rem 0}"
    ".title{font-size:14px;font-weight:600}table{border-collapse:collapse;margin:1rem 0}"
    "td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;text-align:right}"
    "td:first-child,th:first-child{text-align:left}"
    "pre{background:#f6f6f6;padding:.8rem;overflow:auto;white-space:pre-wrap}</style></head><body>\n";

std::string row(std::initializer_list<std::string> cells, const char* tag = "td") {
  std::string out = "<tr>";
  for (const std::string& cell : cells) out += fmt::format("<{0}>{1}</{0}>", tag, html_text(cell));
  return out + "</tr>\n";
}

std::string pre(const std::string& text) { return "<pre>" + html_text(text) + "</pre>\n"; }

std::string facts(const RunSummary& in) {
  std::string out = fmt::format("<h1>{}</h1><table>\n", html_text(in.title));
  for (const auto& [name, value] : in.facts) out += row({name, value});
  for (const auto& [name, loss] : in.baselines)
    out += row({name + ", held-out loss", fmt::format("{:.4f}", loss)});
  return out + "</table>\n";
}

std::string loss_chart(const RunSummary& in) {
  std::vector<Series> series{{"training", "#1f77b4", {}}, {"held out", "#d62728", {}, true}};
  for (const StepRecord& m : in.steps) series[0].points.emplace_back(m.step, m.loss);
  for (const EvalRecord& m : in.evals) series[1].points.emplace_back(m.step, m.loss);
  const char* grays[] = {"#999999", "#555555"};
  for (size_t b = 0; b < in.baselines.size() && !in.steps.empty(); ++b) {
    double loss = in.baselines[b].second;
    auto first = static_cast<double>(in.steps.front().step), last = static_cast<double>(in.steps.back().step);
    series.push_back({in.baselines[b].first, grays[b % 2], {{first, loss}, {last, loss}}});
  }
  return line_chart("Loss", "step", "nats per token", series);
}

std::string pace_charts(const RunSummary& in) {
  Series pace{"", "#2ca02c", {}}, norm{"", "#9467bd", {}}, rate{"", "#ff7f0e", {}};
  for (const StepRecord& m : in.steps) {
    auto step = static_cast<double>(m.step);
    pace.points.emplace_back(step, m.tokens_per_second);
    norm.points.emplace_back(step, m.grad_norm);
    rate.points.emplace_back(step, m.lr);
  }
  return line_chart("Throughput of all ranks", "step", "tokens/s", {pace}) +
         line_chart("Gradient norm before clipping", "step", "", {norm}) +
         line_chart("Learning rate", "step", "", {rate});
}

std::string memory_section(const RunSummary& in) {
  TierBytes used;
  if (!in.steps.empty()) used = in.steps.back().bytes;
  std::string out = "<h2>Memory of a rank</h2><table>\n" + row({"tier", "planned", "allocated"}, "th");
  out += row({"device", bytes_text(in.plan.device), bytes_text(used.device)});
  out += row({"host", bytes_text(in.plan.host), bytes_text(used.host)});
  out += row({"nvme", bytes_text(in.plan.nvme), bytes_text(used.nvme)});
  return out + "</table>\n";
}

std::string traffic_section(const RunSummary& in) {
  if (in.comm.empty()) return "";
  std::string out = "<h2>Traffic of rank 0</h2><table>\n" + row({"operation", "calls", "bytes"}, "th");
  for (const CommRecord& c : in.comm) {
    out += row({c.operation, std::to_string(c.calls), std::to_string(c.bytes)});
  }
  return out + "</table>\n";
}

std::string queue_section(const RunSummary& in) {
  if (in.spans.empty() || in.spans.front().second.empty()) return "";
  std::string out = "<h2>Time per queue (rank 0, a few steps; all ranks in trace.json)</h2><table>\n" +
                    row({"queue", "busy ms", "while another queue is busy", "share"}, "th");
  for (const auto& [name, time] : queue_times(in.spans.front().second)) {
    out += row({name, fmt::format("{:.2f}", time.busy * 1e3), fmt::format("{:.2f}", time.overlapped * 1e3),
                fmt::format("{:.0f} %", time.busy > 0 ? 100 * time.overlapped / time.busy : 0)});
  }
  return out + "</table>\n";
}

}  // namespace

std::map<std::string, QueueTime> queue_times(const std::vector<Trace::Span>& spans) {
  // Sweep over begins and ends; at equal times ends come first, so that touching spans do not overlap.
  std::vector<std::pair<std::pair<int64_t, int>, const Trace::Span*>> events;
  for (const Trace::Span& s : spans) {
    if (s.end_ns <= s.begin_ns) continue;
    events.push_back({{s.begin_ns, 1}, &s});
    events.push_back({{s.end_ns, -1}, &s});
  }
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::map<std::string, QueueTime> times;
  std::map<std::string, int> open;
  int64_t before = 0;
  for (const auto& [event, span] : events) {
    auto busy = std::count_if(open.begin(), open.end(), [](const auto& o) { return o.second > 0; });
    double seconds = static_cast<double>(event.first - before) * 1e-9;
    for (const auto& [track, count] : open) {
      if (count == 0) continue;
      times[track].busy += seconds;
      if (busy > 1) times[track].overlapped += seconds;
    }
    open[span->track] += event.second;
    before = event.first;
  }
  return times;
}

std::string run_page(const RunSummary& in) {
  std::string out = kHead + facts(in) + loss_chart(in) + pace_charts(in);
  if (!in.sample.empty()) out += "<h2>Sample</h2>" + pre(in.sample);
  out += memory_section(in) + traffic_section(in) + queue_section(in);
  out += "<h2>Configuration</h2>" + pre(in.config.dump(2));
  return out + pre(in.numerics_key) + "</body></html>\n";
}

}  // namespace ds
