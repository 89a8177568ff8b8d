#include "monitor/facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/bytes_text.h"
#include "monitor/readable_text.h"

namespace ds {
namespace {

// Returns a tile with a name, a value in large type and, unless it is empty, a line of detail
// below.
std::string tile(const std::string& name, const std::string& value, const std::string& detail) {
  std::string html = "<div><dt>" + html_text(name) + "</dt><dd>" + html_text(value);
  if (!detail.empty()) html += "<small>" + html_text(detail) + "</small>";
  return html + "</dd></div>";
}

std::string counted(int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// Returns, for example, "12,345,678" for 12345678.
std::string grouped(int64_t value) {
  std::string text = std::to_string(value);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

// Step times in ascending order, and sums, over the steps for which both a time and a rate are
// known.
struct Pace {
  std::vector<double> seconds;
  double time = 0, tokens = 0;
  explicit Pace(const std::vector<StepRecord>& steps) {
    for (const StepRecord& r : steps) {
      if (!std::isfinite(r.seconds) || !std::isfinite(r.tokens_per_second)) continue;
      seconds.push_back(r.seconds);
      time += r.seconds;
      tokens += r.seconds * r.tokens_per_second;
    }
    std::ranges::sort(seconds);
  }
};

// Returns the held-out loss if it was measured, otherwise the loss of the last training step.
std::string loss_tile(const RunSummary& summary) {
  if (!summary.evals.empty() && std::isfinite(summary.evals.back().loss)) {
    double loss = summary.evals.back().loss, unit = summary.bits_a_byte;
    std::string levels;
    for (const auto& [name, value] : summary.baselines) {
      if (!std::isfinite(value)) continue;
      levels += fmt::format("; {} {:.3f}", baseline_text(name),
                            std::isfinite(unit) ? value * unit : value);
    }
    std::string tiles = tile("Held-out loss", fmt::format("{:.4f}", loss),
                             "nats per token" + (std::isfinite(unit) ? "" : levels));
    if (!std::isfinite(unit)) return tiles;
    std::string of = summary.seen_heldout.empty() ? "of held-out text"
                                                  : "of held-out text, " + summary.seen_heldout;
    return tiles + tile("Bits per byte", fmt::format("{:.3f}", loss * unit), of + levels);
  }
  if (summary.steps.empty() || !std::isfinite(summary.steps.back().loss)) return "";
  return tile("Training loss", fmt::format("{:.4f}", summary.steps.back().loss),
              "nats per token, last step");
}

// Returns the tokens, time and rate of the run. The mean rate is the number of tokens of all steps
// divided by their total time.
std::string pace_tiles(const RunSummary& summary) {
  Pace pace(summary.steps);
  if (pace.seconds.empty() || !(pace.time > 0)) return "";
  double each = pace.tokens / static_cast<double>(pace.seconds.size());
  return tile("Tokens seen", count_text(pace.tokens),
              fmt::format("{} of {} tokens",
                          counted(static_cast<int64_t>(pace.seconds.size()), "step"),
                          grouped(std::llround(each)))) +
         tile("Training time", time_text(pace.time),
              fmt::format("median step {}; without evaluation and saves",
                          time_text(pace.seconds[pace.seconds.size() / 2]))) +
         tile("Tokens per second", count_text(pace.tokens / pace.time),
              "of all ranks, mean over the run");
}

// Returns the peak memory: the sum of device and host memory and of the overhead outside the plan.
std::string memory_tile(const RunSummary& summary) {
  TierBytes peak = peak_bytes(summary);
  if (peak.device + peak.host == 0) return "";
  std::string detail = fmt::format("of one rank: device {}, host {}", bytes_text(peak.device),
                                   bytes_text(peak.host));
  if (summary.overhead > 0) detail += ", overhead " + bytes_text(summary.overhead);
  return tile("Peak memory", bytes_text(peak.device + peak.host + summary.overhead), detail);
}

std::string skipped_tile(const RunSummary& summary) {
  if (summary.skipped == 0) return "";
  std::string detail = "NaN or infinity in loss or gradients: nothing was updated";
  if (!std::isnan(summary.loss_scale))
    detail += fmt::format("; loss scale {} after the last step", summary.loss_scale);
  return tile("Skipped steps", grouped(summary.skipped), detail);
}

// Returns the number of checkpoints and the time that steps waited for them; a thread may have
// written them meanwhile.
std::string saves_tile(const RunSummary& summary) {
  if (summary.saves == 0) return "";
  return tile("Checkpoints", grouped(summary.saves),
              fmt::format("steps waited {} for them{}", time_text(summary.save_seconds),
                          summary.saves_started ? "; a thread wrote all but the last" : ""));
}

std::string machine_tile(const RunSummary& summary) {
  if (summary.ranks <= 0) return "";
  std::string value = counted(summary.ranks, "rank");
  if (summary.threads > 0) value += " × " + counted(summary.threads, "thread");
  return tile("Processor", value, summary.processor);
}

}  // namespace

// Tiers may reach their peaks after different steps.
TierBytes peak_bytes(const RunSummary& summary) {
  TierBytes peak;
  for (const StepRecord& r : summary.steps) {
    peak.device = std::max(peak.device, r.bytes.device);
    peak.host = std::max(peak.host, r.bytes.host);
    peak.nvme = std::max(peak.nvme, r.bytes.nvme);
  }
  return peak;
}

std::string fact_tiles(const RunSummary& summary) {
  std::string html = loss_tile(summary);
  if (summary.parameters > 0) {
    html += tile("Parameters", count_text(static_cast<double>(summary.parameters)),
                 grouped(summary.parameters));
  }
  html += pace_tiles(summary) + skipped_tile(summary) + memory_tile(summary) + saves_tile(summary) +
          machine_tile(summary);
  if (!summary.end.empty()) {
    html += tile("Steps", summary.steps.empty() ? "0" : grouped(summary.steps.back().step),
                 summary.end);
  }
  return html.empty() ? html : "<dl class=\"facts\">" + html + "</dl>\n";
}

}  // namespace ds
