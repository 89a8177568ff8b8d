// Builds report.html as a string, part by part. Each part is a function that returns "" if it has
// no data; card() then omits it. Texts from outside pass through html_text(), so that nothing in a
// run can become markup.
#include "monitor/run_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "core/base/bytes_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/trace.h"
#include "io/file.h"
#include "monitor/bars.h"
#include "monitor/chart.h"
#include "monitor/facts.h"
#include "monitor/plan_picture.h"
#include "monitor/queue_time.h"
#include "monitor/readable_text.h"
#include "monitor/run_report_style.h"

namespace ds {
namespace {

// The training loss is smoothed if there are more than this many steps.
constexpr size_t kSmoothFrom = 200;

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

std::string note(const std::string& text) {
  return "<p class=\"note\">" + html_text(text) + "</p>";
}

// Returns a heading, with the steps and ranks that the part below it covers.
std::string heading(const std::string& title, const std::string& span) {
  return "<h2>" + html_text(title) + "</h2><p class=\"span\">" + html_text(span) + "</p>";
}

// Returns the range of steps in the summary, such as "steps 1 to 100", or "no steps".
std::string steps_text(const RunSummary& summary) {
  if (summary.steps.empty()) return "no steps";
  return fmt::format("steps {} to {}", summary.steps.front().step, summary.steps.back().step);
}

// Returns the range of steps that the counters of this process cover.
std::string process_text(const RunSummary& summary) {
  if (summary.steps.empty()) return "rank 0";
  return fmt::format("rank 0, steps {} to {} with their evaluations", summary.first_step,
                     summary.steps.back().step);
}

// Returns a table in a box that scrolls if the table is wider than the page, and that the keyboard
// can focus.
std::string table(const std::string& name, const std::string& rows) {
  return fmt::format(
             "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table>\n",
             html_text(name)) +
         rows + "</table></div>";
}

// Returns the chart of the training loss, with held-out loss and baselines. If there are many
// steps, the loss of each step is drawn faintly, with a moving average over it.
std::string loss_chart(const RunSummary& summary) {
  LineChart chart;
  chart.title = "Loss";
  chart.note = "nats per token";
  chart.height = 320;
  Points train = points_of(summary.steps, &StepRecord::loss);
  if (train.size() > kSmoothFrom) {
    double span = static_cast<double>(train.size()) / 50;
    chart.series.push_back({"each step", 1, train, true, false});
    chart.series.push_back({fmt::format("training, mean over about {:.0f} steps", span), 1,
                            smooth_points(train, span), false, false});
  } else {
    chart.series.push_back({"training", 1, train, false, false});
  }
  Points heldout;
  for (const EvalRecord& r : summary.evals)
    heldout.emplace_back(static_cast<double>(r.step), r.loss);
  if (!heldout.empty()) chart.series.push_back({"held-out text", 2, heldout, false, true});
  chart.levels = summary.baselines;
  std::string html = line_chart(chart);
  if (html.empty()) return html;
  std::string words =
      train.size() > kSmoothFrom ? "Thin line: the training loss of each step. " : "";
  if (!summary.baselines.empty()) {
    words +=
        "Dashed: the held-out loss of models that only count the bytes or tokens of the training "
        "text";
    bool gzip =
        std::ranges::any_of(summary.baselines, [](const auto& one) { return one.first == "gzip"; });
    words += gzip ? ", and what gzip -9 makes of the held-out text." : ".";
  }
  return words.empty() ? html : html + note(words);
}

// Returns the chart of one value of each step, with a y axis from zero.
std::string step_chart(const RunSummary& summary, const std::string& title,
                       const std::string& words, double StepRecord::*value, Unit unit, int colour) {
  LineChart chart;
  chart.title = title;
  chart.note = words;
  chart.unit = unit;
  chart.from_zero = true;
  chart.series.push_back({title, colour, points_of(summary.steps, value), false, false});
  return line_chart(chart);
}

// Bytes of one tier: planned, measured, and allowed by the configuration (-1 means no limit).
struct TierRow {
  const char* name;
  int64_t plan, peak, budget;
  int colour;
};

// Returns bars of plan, measured peak and budget for each tier in use, all at one scale.
std::string memory_card(const RunSummary& summary) {
  TierBytes peak = peak_bytes(summary);
  const TierBytes &plan = summary.plan, &budget = summary.budget;
  const TierRow tiers[] = {{"device", plan.device, peak.device, budget.device, 1},
                           {"host", plan.host, peak.host, budget.host, 3},
                           {"nvme", plan.nvme, peak.nvme, budget.nvme, 5}};
  int64_t most = 0;
  for (const TierRow& tier : tiers) most = std::max({most, tier.plan, tier.peak, tier.budget});
  std::string html;
  for (const TierRow& tier : tiers) {
    if (tier.plan == 0 && tier.peak == 0) continue;
    auto bar = [&](const char* name, int64_t bytes, bool full) {
      auto value = static_cast<double>(bytes);
      return Bar{name, value, full ? value : 0, bytes_text(bytes), tier.colour};
    };
    std::vector<Bar> bars{bar("plan", tier.plan, false), bar("measured peak", tier.peak, true)};
    if (tier.budget >= 0) bars.push_back(bar("budget", tier.budget, false));
    html += fmt::format("<div><h3>{}</h3>", tier.name) + bar_list(bars, static_cast<double>(most)) +
            "</div>";
  }
  if (html.empty()) return "";
  return heading("Memory against plan", "rank 0, " + steps_text(summary)) +
         "<div class=\"groups\">" + html + "</div>" +
         note(
             "The plan is what the compiler laid out before the first step; the peak is the most "
             "that was allocated after any step. All bars have one scale.");
}

// Returns bars of the bytes received by each collective that was called.
std::string communication_card(const RunSummary& summary) {
  std::vector<Bar> bars;
  double most = 0;
  for (const CommRecord& r : summary.comm) {
    if (r.calls == 0) continue;
    auto bytes = static_cast<double>(r.bytes);
    most = std::max(most, bytes);
    bars.push_back(
        {r.operation, bytes, bytes,
         fmt::format("{}, {} {}", bytes_text(r.bytes), count_text(static_cast<double>(r.calls)),
                     r.calls == 1 ? "call" : "calls"),
         2});
  }
  if (bars.empty()) return "";
  return heading("Communication", process_text(summary)) + bar_list(bars, most) +
         note("Bytes received from other ranks.");
}

// Returns the communication log as a table. Its first row has the names of the columns.
std::string comm_log_card(const RunSummary& summary) {
  if (summary.comm_times.empty()) return "";
  std::string rows;
  for (const std::vector<std::string>& line : summary.comm_times) {
    const char* cell = rows.empty() ? "th" : "td";
    rows += "<tr>";
    for (const std::string& text : line)
      rows += fmt::format("<{0}>{1}</{0}>", cell, html_text(text));
    rows += "</tr>\n";
  }
  return heading("Communication log", process_text(summary)) + table("Communication log", rows) +
         note(
             "Waited: longer than the rank that returned soonest, call by call. Slowest: the rank "
             "that the others waited for.");
}

// Number of ranks that the report shows; the trace has all ranks.
constexpr size_t kShownRanks = 4;

// Returns "rank 0", "ranks 0 and 1", or "ranks 0 to 3 of 8".
std::string ranks_text(const RankSpans& spans) {
  size_t shown = std::min(spans.size(), kShownRanks);
  if (shown == 1) return "rank 0";
  std::string text = fmt::format("ranks 0 {} {}", shown == 2 ? "and" : "to", shown - 1);
  return shown == spans.size() ? text : text + fmt::format(" of {}", spans.size());
}

// Returns "28 %" or "under 1 %".
std::string share_text(double part, double whole) {
  double percent = whole > 0 ? 100 * part / whole : 0;
  return percent > 0 && percent < 0.5 ? "under 1 %" : fmt::format("{:.0f} %", percent);
}

// Returns bars of the busy time of each queue, with the overlapped part in full color.
std::string queue_card(const RunSummary& summary) {
  RankSpans shown(
      summary.spans.begin(),
      summary.spans.begin() + static_cast<int64_t>(std::min(summary.spans.size(), kShownRanks)));
  std::vector<QueueTime> times = queue_times(shown);
  if (times.empty()) return "";
  std::string html;
  for (const auto& [rank, spans] : shown) {
    std::vector<Bar> bars;
    double steps = 0;
    for (const QueueTime& t : times) {
      if (t.rank != rank) continue;
      steps = t.steps;
      bars.push_back({queue_name_text(t.queue), t.busy, t.hidden,
                      fmt::format("{} busy, {} overlapped", share_text(t.busy, t.steps),
                                  share_text(t.hidden, t.busy)),
                      queue_colour(t.queue)});
    }
    html += fmt::format("<h3>rank {}</h3>", rank) + bar_list(bars, steps);
  }
  return heading("Time per queue", recorded_steps(shown) + ", " + ranks_text(summary.spans)) +
         note(
             "Overlap is the part of a queue's busy time, in full colour, in which its rank "
             "computes as well (compute: in which any other queue works), so that it costs no time "
             "of its own.") +
         html + note("The whole width is the time of these steps.");
}

std::string timeline_card(const RunSummary& summary) {
  TimelineChart lanes = timeline(summary.spans, kShownRanks);
  if (lanes.html.empty()) return "";
  return heading("Timeline of one step", lanes.step + ", " + ranks_text(summary.spans)) +
         lanes.html +
         note("The whole width is " + time_text(lanes.seconds) +
              ". At the right: how long the queue was busy. trace.json has all recorded steps of "
              "all ranks.");
}

// Rows of the configuration table: for keys that were given, and for keys left at their defaults.
struct ConfigRows {
  std::string given, defaults;
};

// Appends a row for each value in nested objects, named by its key path. `origins` maps a key path
// to the origin of its value; it may be null.
void config_rows(const Json& value, const std::string& path, const Json* origins,
                 ConfigRows& rows) {
  if (value.is_object()) {
    for (const auto& [name, item] : value.object()) {
      config_rows(item, path.empty() ? name : path + "." + name, origins, rows);
    }
    return;
  }
  const Json* origin = origins ? origins->find(path) : nullptr;
  std::string from = origin && origin->is_string() ? html_text(origin->string()) : "";
  (from == "default" ? rows.defaults : rows.given) += fmt::format(
      "<tr><td><code>{}</code></td><td class=\"long\"><code>{}</code></td><td>{}</td></tr>\n",
      html_text(path), html_text(value.dump()), from);
}

// Returns the configuration as tables. Values that were given come first; those left at their
// defaults can be unfolded.
std::string config_card(const RunSummary& summary) {
  const Json& document = summary.config;
  if (!document.is_object()) return "";
  const Json* values = document.find("config");
  const Json* origins = document.find("origins");
  bool effective = values && origins && values->is_object() && origins->is_object();
  ConfigRows rows;
  config_rows(effective ? *values : document, "", effective ? origins : nullptr, rows);
  const std::string names = "<tr><th>key</th><th>value</th><th>origin</th></tr>\n";
  std::string html = "<h2>Configuration</h2>";
  if (!rows.given.empty()) html += table("Configuration", names + rows.given);
  if (rows.defaults.empty()) return html;
  return html + "<details><summary>Values left at their defaults</summary>" +
         table("Defaults", names + rows.defaults) + "</details>";
}

// Returns the samples of the run. All samples have the same prompt, so it is shown once, before the
// first.
std::string samples_card(const RunSummary& summary) {
  std::string html;
  for (const SampleRecord& sample : summary.samples) {
    if (sample.text.empty()) continue;
    if (html.empty() && !sample.prompt.empty()) {
      html = note("It continues this beginning of the held-out text:") + "<pre>" +
             html_text(sample.prompt) + "</pre>";
    }
    html +=
        fmt::format("<h3>{}</h3><pre>{}</pre>", after_step(sample.step), html_text(sample.text));
  }
  return html.empty() ? html : "<h2>What the model writes</h2>" + html;
}

// Returns the picture that `libds plan --svg` draws, for the plan of this run only.
std::string plan_card(const RunSummary& summary) {
  if (summary.plan_columns.empty()) return "";
  std::string picture = plan_picture(summary.plan_columns, "");
  // Inside an HTML page, the namespace declaration is implied.
  constexpr std::string_view kNamespace = " xmlns=\"http://www.w3.org/2000/svg\"";
  if (size_t at = picture.find(kNamespace); at != picture.npos)
    picture.erase(at, kNamespace.size());
  return heading("The compiled step", "one step of one rank, as planned before it ran") +
         "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"The compiled step\">" +
         picture + "</div>" + (summary.plan_note.empty() ? "" : note(summary.plan_note));
}

std::string about_card(const RunSummary& summary) {
  auto facts = summary.facts;
  if (!summary.numerics_key.empty()) facts.emplace_back("numerics", summary.numerics_key);
  std::string html;
  for (const auto& [name, value] : facts) {
    if (!value.empty())
      html += fmt::format("<dt>{}</dt><dd>{}</dd>", html_text(name), html_text(value));
  }
  return html.empty() ? html : "<h2>About this run</h2><dl class=\"about\">" + html + "</dl>";
}

// A Content-Security-Policy forbids the browser to load anything, because the document needs no
// other file.
constexpr const char* kHead =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
    "'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n";

}  // namespace

// The order follows a reader's questions: first the results, then the costs, then the settings.
std::string report_html(const RunSummary& summary) {
  std::string title = html_text(summary.title);
  std::string html =
      std::string(kHead) + "<title>" + title + " - libds</title>\n<style>" + report_style;
  html += "</style></head>\n<body><main>\n<h1>" + title + "</h1>\n" + fact_tiles(summary);
  html += "<div class=\"cards\">\n" + card(loss_chart(summary), true) +
          card(samples_card(summary), true);
  html += card(step_chart(summary, "Tokens per second", "all ranks", &StepRecord::tokens_per_second,
                          Unit::count, 3));
  html += card(step_chart(summary, "Learning rate", "", &StepRecord::lr, Unit::number, 4));
  html += card(step_chart(summary, "Gradient norm", "before clipping", &StepRecord::grad_norm,
                          Unit::number, 6));
  html += card(memory_card(summary), true) + card(queue_card(summary), true) +
          card(timeline_card(summary), true);
  html += card(plan_card(summary), true);
  html += card(communication_card(summary), true) + card(comm_log_card(summary), true) +
          card(about_card(summary), true);
  html += card(config_card(summary), true) + "</div>\n</main>\n<script>";
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
