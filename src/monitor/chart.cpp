#include "monitor/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/json.h"
#include "monitor/text.h"

namespace ds {
namespace {

// Maps data to pixels of the plot area.
struct Frame {
  double left, right, top, bottom;
  double x0, x1, y0, y1;
  double x(double v) const { return left + (v - x0) / (x1 - x0) * (right - left); }
  double y(double v) const { return bottom - (v - y0) / (y1 - y0) * (bottom - top); }
};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  // Something to divide by, when all values are the same.
  void widen() {
    if (high > low) return;
    double half = low == 0 ? 1 : std::abs(low) / 2;
    low -= half;
    high += half;
  }
};

std::string path_data(const std::vector<std::pair<double, double>>& points, const Frame& frame) {
  std::string data;
  bool pen = false;
  for (const auto& [x, y] : points) {
    if (std::isfinite(y)) {
      data += fmt::format("{}{:.1f} {:.1f}", pen ? "L" : "M", frame.x(x), frame.y(y));
    }
    pen = std::isfinite(y);
  }
  return data;
}

std::string axes(const LineChart& chart, const Frame& frame) {
  std::string svg;
  for (double tick : axis_ticks(frame.y0, frame.y1, chart.height / 38)) {
    double y = frame.y(tick);
    svg += fmt::format(R"(<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/>)", frame.left, y, frame.right);
    svg += fmt::format(R"(<text class="tick" text-anchor="end" x="{:.1f}" y="{:.1f}">{}</text>)",
                       frame.left - 6, y + 3.5, unit_text(tick, chart.unit));
  }
  for (double tick : axis_ticks(frame.x0, frame.x1, chart.width / 100)) {
    svg += fmt::format(R"(<text class="tick" text-anchor="middle" x="{:.1f}" y="{:.1f}">{}</text>)",
                       frame.x(tick), frame.bottom + 16, unit_text(tick, Unit::count));
  }
  svg +=
      fmt::format(R"(<path class="axis" d="M{:.1f} {:.1f}H{:.1f}"/>)", frame.left, frame.bottom, frame.right);
  return svg + fmt::format(R"(<text class="tick" text-anchor="end" x="{:.1f}" y="{:.1f}">{}</text>)",
                           frame.right, frame.bottom + 30, html_text(chart.x_name));
}

// Names of the lines stand above the plot; those of the levels on their line.
std::string legend(const LineChart& chart) {
  if (chart.series.size() < 2) return "";  // the title says it
  std::string html;
  for (const Series& series : chart.series) {
    if (series.faint || series.name.empty()) continue;
    html += fmt::format(R"(<span><i class="c{}"></i>{}</span>)", series.colour, html_text(series.name));
  }
  return html.empty() ? html : "<div class=\"legend\">" + html + "</div>";
}

std::string levels(const LineChart& chart, const Frame& frame) {
  std::string svg;
  for (const auto& [name, value] : chart.levels) {
    if (!std::isfinite(value)) continue;
    double y = frame.y(value);
    svg += fmt::format(R"(<path class="level" d="M{:.1f} {:.1f}H{:.1f}"/>)", frame.left, y, frame.right);
    svg += fmt::format(R"(<text class="name" text-anchor="end" x="{:.1f}" y="{:.1f}">{} {}</text>)",
                       frame.right, y - 4, html_text(name), unit_text(value, chart.unit));
  }
  return svg;
}

// What the script needs to show values under the pointer.
std::string hover_data(const LineChart& chart, const Frame& frame) {
  std::string series;
  for (const Series& s : chart.series) {
    if (s.faint) continue;
    std::string points;
    for (const auto& [x, y] : thin_points(s.points, 200)) {
      if (std::isfinite(y)) points += fmt::format("{}[{},{:.6g}]", points.empty() ? "" : ",", x, y);
    }
    series += fmt::format(R"({}{{"n":{},"c":{},"p":[{}]}})", series.empty() ? "" : ",", Json(s.name).dump(),
                          s.colour, points);
  }
  return fmt::format(R"({{"x0":{},"x1":{},"l":{},"r":{},"u":{},"s":[{}]}})", frame.x0, frame.x1, frame.left,
                     frame.right, static_cast<int>(chart.unit), series);
}

std::string lines(const LineChart& chart, const Frame& frame) {
  std::string svg;
  for (const Series& series : chart.series) {
    auto points = thin_points(series.points, static_cast<size_t>(chart.width));
    svg += fmt::format(R"(<path class="line c{}{}" d="{}"/>)", series.colour, series.faint ? " faint" : "",
                       path_data(points, frame));
    if (!series.dots && series.points.size() > 1) continue;
    for (const auto& [x, y] : points) {
      if (!std::isfinite(y)) continue;
      svg += fmt::format(R"(<circle class="dot c{}" r="3" cx="{:.1f}" cy="{:.1f}"/>)", series.colour,
                         frame.x(x), frame.y(y));
    }
  }
  return svg;
}

}  // namespace

std::string unit_text(double value, Unit unit) {
  switch (unit) {
    case Unit::count:
      return std::abs(value) < 1000 ? fmt::format("{:.4g}", value) : count_text(value);
    case Unit::bytes:
      return bytes_text(static_cast<int64_t>(value));
    case Unit::scientific:
      return value == 0 ? "0" : fmt::format("{:.2e}", value);
    case Unit::number:
      break;
  }
  return fmt::format("{:.4g}", value);
}

std::vector<double> axis_ticks(double low, double high, int wanted) {
  std::vector<double> ticks;
  double rough = (high - low) / std::max(wanted, 1);
  if (!(rough > 0) || !std::isfinite(rough)) return ticks;
  double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power * 10;
  for (double factor : {5.0, 2.0, 1.0}) {
    if (power * factor >= rough * (1 - 1e-9)) step = power * factor;
  }
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9; ++i)
    ticks.push_back(i * step + 0.0);  // no negative zero
  return ticks;
}

std::vector<std::pair<double, double>> thin_points(const std::vector<std::pair<double, double>>& points,
                                                   size_t buckets) {
  if (points.size() <= 2 * buckets || buckets == 0) return points;
  std::vector<std::pair<double, double>> kept;
  size_t begin = 0;
  for (size_t b = 1; b <= buckets; ++b) {
    size_t end = points.size() * b / buckets;
    size_t low = begin, high = begin;
    for (size_t i = begin; i < end; ++i) {
      if (!(points[i].second >= points[low].second)) low = i;  // also onto a value that is not a number
      if (points[i].second > points[high].second || !std::isfinite(points[high].second)) high = i;
    }
    kept.push_back(points[std::min(low, high)]);
    if (low != high) kept.push_back(points[std::max(low, high)]);
    begin = end;
  }
  return kept;
}

std::vector<std::pair<double, double>> smooth_points(const std::vector<std::pair<double, double>>& points,
                                                     double span) {
  auto out = points;
  double mean = 0, seen = 0;
  for (auto& [x, y] : out) {
    if (!std::isfinite(y)) continue;
    mean += std::max(2 / (span + 1), 1 / ++seen) * (y - mean);
    y = mean;
  }
  return out;
}

std::string line_chart(const LineChart& chart) {
  Range xs, ys;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      if (!std::isfinite(y)) continue;
      xs.add(x);
      ys.add(y);
    }
  }
  if (!(xs.low <= xs.high)) return "";
  for (const auto& [name, value] : chart.levels) {
    if (std::isfinite(value)) ys.add(value);
  }
  if (chart.from_zero) ys.add(0);
  xs.widen();
  ys.widen();
  double margin = (ys.high - ys.low) * 0.05;
  Frame frame{
      62, chart.width - 8.0, 8, chart.height - 34.0, xs.low, xs.high, ys.low - margin, ys.high + margin};
  if (chart.from_zero && ys.low == 0) frame.y0 = 0;
  std::string out = "<figure><figcaption>" + html_text(chart.title) + "</figcaption>" + legend(chart);
  out += fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}" data-chart='{}'>)", chart.width,
                     chart.height, html_text(chart.title), html_text(hover_data(chart, frame)));
  out += axes(chart, frame) + lines(chart, frame) + levels(chart, frame);
  out += fmt::format(R"(<path class="cursor" d="M0 {:.1f}V{:.1f}"/>)", frame.top, frame.bottom);
  return out + "</svg></figure>\n";
}

std::string bar_chart(const std::vector<Bar>& bars, int width) {
  constexpr int row = 26, name_width = 118, text_width = 168;
  double most = 0;
  for (const Bar& bar : bars) most = std::max({most, bar.value, bar.mark});
  if (bars.empty()) return "";
  double room = width - name_width - text_width;
  auto length = [&](double value) { return most > 0 ? value / most * room : 0; };
  std::string svg =
      fmt::format(R"(<svg viewBox="0 0 {} {}" role="img">)", width, row * static_cast<int>(bars.size()));
  int y = 0;
  for (const Bar& bar : bars) {
    svg += fmt::format(R"(<text class="label" text-anchor="end" x="{}" y="{}">{}</text>)", name_width - 8,
                       y + 17, html_text(bar.name));
    svg += fmt::format(R"(<rect class="track" x="{}" y="{}" width="{:.1f}" height="14" rx="2"/>)", name_width,
                       y + 6, room);
    svg += fmt::format(R"(<rect class="bar c{}" x="{}" y="{}" width="{:.1f}" height="14" rx="2"/>)",
                       bar.colour, name_width, y + 6, length(bar.value));
    if (bar.part > 0) {
      svg += fmt::format(R"(<rect class="bar part c{}" x="{}" y="{}" width="{:.1f}" height="14" rx="2"/>)",
                         bar.colour, name_width, y + 6, length(bar.part));
    }
    if (bar.mark > 0) {
      svg += fmt::format(R"(<path class="mark" d="M{:.1f} {}v20"/>)", name_width + length(bar.mark), y + 3);
    }
    svg += fmt::format(R"(<text class="value" x="{:.1f}" y="{}">{}</text>)", name_width + room + 8, y + 17,
                       html_text(bar.text));
    y += row;
  }
  return svg + "</svg>";
}

}  // namespace ds
