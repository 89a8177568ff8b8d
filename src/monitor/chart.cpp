// Draws charts as strings of HTML and SVG.
//
// Problem. A chart should stretch with the page, stay readable on a phone, and need no script. But
// stretching an SVG distorts its text and its round marks.
// Algorithm. The SVG contains only lines, whose strokes do not scale, in a viewBox of 1000 units by
// the height in pixels, with preserveAspectRatio="none". Labels are HTML elements over it,
// positioned horizontally in percent and vertically in pixels. A long series is first reduced to
// its outline, so a page stays small for any number of steps.
#include "monitor/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "core/base/json.h"
#include "monitor/readable_text.h"

namespace ds {
namespace {

using Points = std::vector<std::pair<double, double>>;

// Width of a plot in units of its SVG, which the page stretches. A vertical unit is a pixel.
constexpr double kWidth = 1000;

// A map from data to units of the plot.
struct Frame {
  double height;
  double x0, x1, y0, y1;
  double x(double v) const { return (v - x0) / (x1 - x0) * kWidth; }
  double y(double v) const { return height - (v - y0) / (y1 - y0) * height; }
};

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
  void add(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  // Extends the range if all values are equal, so that one can divide by its length.
  void widen() {
    if (high > low) return;
    double half = low == 0 ? 1 : std::abs(low) / 2;
    low -= half;
    high += half;
  }
};

// Returns the path through the points. A point that is not finite interrupts the line.
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

std::vector<double> y_ticks(const LineChart& chart, const Frame& frame) {
  return axis_ticks(frame.y0, frame.y1, chart.height / 44);
}

// Draws a horizontal line at each y label, about one every 44 pixels, and the x axis.
std::string grid(const LineChart& chart, const Frame& frame) {
  std::string svg;
  for (double tick : y_ticks(chart, frame)) {
    svg += fmt::format(R"(<path class="grid" d="M0 {:.1f}H{}"/>)", frame.y(tick), kWidth);
  }
  return svg + fmt::format(R"(<path class="axis" d="M0 {0}H{1}"/>)", chart.height, kWidth);
}

// Returns the y labels. Their column is as wide as the widest label.
std::string y_labels(const LineChart& chart, const Frame& frame) {
  std::string html;
  size_t widest = 1;
  for (double tick : y_ticks(chart, frame)) {
    std::string text = unit_text(tick, chart.unit);
    widest = std::max(widest, text.size());
    html += fmt::format(R"(<span style="top:{:.1f}px">{}</span>)", frame.y(tick), text);
  }
  return fmt::format(R"(<div class="ys" aria-hidden="true" style="width:{}ch">)", widest + 1) +
         html + "</div>";
}

// Returns the x labels. Those near a side are aligned to it, so that they do not extend beyond the
// plot.
std::string x_labels(const Frame& frame) {
  std::string html;
  for (double tick : axis_ticks(frame.x0, frame.x1, 5)) {
    double at = frame.x(tick) / kWidth * 100;
    html += fmt::format(R"(<span class="{}" style="left:{:.2f}%">{}</span>)",
                        at < 4    ? "first"
                        : at > 96 ? "last"
                                  : "",
                        at, unit_text(tick, Unit::count));
  }
  return R"(<div class="xs" aria-hidden="true">)" + html + "</div>";
}

// Returns the legend, which names all series except faint ones.
std::string legend(const LineChart& chart) {
  // The title already names a single series.
  if (chart.series.size() < 2) return "";
  std::string html;
  for (const Series& series : chart.series) {
    if (series.faint || series.name.empty()) continue;
    html +=
        fmt::format(R"(<span><i class="c{}"></i>{}</span>)", series.colour, html_text(series.name));
  }
  return html.empty() ? html : "<div class=\"legend\">" + html + "</div>";
}

std::string level_lines(const LineChart& chart, const Frame& frame) {
  std::string svg;
  for (const auto& [name, value] : chart.levels) {
    if (!std::isfinite(value)) continue;
    svg += fmt::format(R"(<path class="level" d="M0 {:.1f}H{}"/>)", frame.y(value), kWidth);
  }
  return svg;
}

// Height of a line of text in pixels.
constexpr double kTextLine = 22;

// Returns whether a curve crosses the place for the name of a level at the right side, above height
// y. On a phone a name needs up to 0.45 of the width.
bool crossed_at_right(const LineChart& chart, const Frame& frame, double y) {
  for (const Series& series : chart.series) {
    for (const auto& point : series.points) {
      if (frame.x(point.first) < 0.55 * kWidth || !std::isfinite(point.second)) continue;
      double at = frame.y(point.second);
      if (at > y - kTextLine && at < y + 2) return true;
    }
  }
  return false;
}

// Writes the name of each level above its line: at the right, or at the left if a curve is in the
// way, and below the line if the level above is too close.
std::string level_names(const LineChart& chart, const Frame& frame) {
  std::vector<std::pair<double, std::string>> names;
  for (const auto& [name, value] : chart.levels) {
    if (!std::isfinite(value)) continue;
    names.emplace_back(frame.y(value), html_text(name) + " " + unit_text(value, chart.unit));
  }
  std::ranges::sort(names);
  std::string html;
  double last = -kTextLine;
  for (const auto& [y, name] : names) {
    bool below = y - last < kTextLine;
    bool left = crossed_at_right(chart, frame, below ? y + kTextLine : y);
    html += fmt::format(R"(<span class="name{}{}" style="top:{:.1f}px">{}</span>)",
                        left ? " left" : "", below ? " below" : "", y, name);
    last = below ? y + kTextLine : y;
  }
  return html;
}

// Describes the chart in words, for screen readers: the first and the last value of each line.
std::string description(const LineChart& chart, const std::string& span) {
  std::string text = chart.title + ", " + span, separator = ": ";
  for (const Series& series : chart.series) {
    Points finite;
    for (const auto& point : series.points) {
      if (std::isfinite(point.second)) finite.push_back(point);
    }
    if (series.faint || finite.empty()) continue;
    text += fmt::format("{}{} from {} to {}", separator, series.name,
                        unit_text(finite.front().second, chart.unit),
                        unit_text(finite.back().second, chart.unit));
    separator = "; ";
  }
  return text;
}

// Returns the data that the script needs to show values under the pointer, reduced to about 200
// buckets for each series.
std::string hover_data(const LineChart& chart, const Frame& frame) {
  std::string series;
  for (const Series& s : chart.series) {
    if (s.faint) continue;
    std::string points;
    for (const auto& [x, y] : thin_points(s.points, 200)) {
      if (std::isfinite(y)) points += fmt::format("{}[{},{:.6g}]", points.empty() ? "" : ",", x, y);
    }
    series += fmt::format(R"({}{{"n":{},"c":{},"p":[{}]}})", series.empty() ? "" : ",",
                          Json(s.name).dump(), s.colour, points);
  }
  return fmt::format(R"({{"x0":{},"x1":{},"u":{},"s":[{}]}})", frame.x0, frame.x1,
                     static_cast<int>(chart.unit), series);
}

// Draws a path for each series, with dots if the series requests them or has a single point.
std::string lines(const LineChart& chart, const Frame& frame) {
  std::string svg;
  for (const Series& series : chart.series) {
    auto points = thin_points(series.points, static_cast<size_t>(kWidth));
    svg += fmt::format(R"(<path class="line c{}{}" d="{}"/>)", series.colour,
                       series.faint ? " faint" : "", path_data(points, frame));
    if (!series.dots && series.points.size() > 1) continue;
    for (const auto& [x, y] : points) {
      if (!std::isfinite(y)) continue;
      // A line of length zero with round caps is drawn as a round dot, however the page stretches
      // the plot.
      svg += fmt::format(R"(<path class="dot c{}" d="M{:.1f} {:.1f}h0"/>)", series.colour,
                         frame.x(x), frame.y(y));
    }
  }
  return svg;
}

}  // namespace

std::string unit_text(double value, Unit unit) {
  constexpr const char* thousands[] = {"", "k", "M", "G", "T", "P"};
  size_t power = 0;
  while (unit == Unit::count && std::abs(value) >= 1000 && power + 1 < std::size(thousands)) {
    value /= 1000;
    ++power;
  }
  return fmt::format("{:.4g}{}", value, thousands[power]);
}

// Uses the smallest step of 1, 2 or 5 times a power of ten with at most `wanted` intervals. The
// tolerance of 1e-9 allows for rounding errors at the ends.
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

std::vector<std::pair<double, double>> thin_points(
    const std::vector<std::pair<double, double>>& points, size_t buckets) {
  if (points.size() <= 2 * buckets || buckets == 0) return points;
  std::vector<std::pair<double, double>> kept;
  size_t begin = 0;
  for (size_t b = 1; b <= buckets; ++b) {
    size_t end = points.size() * b / buckets;
    // `end` stands for a point that the bucket does not have.
    size_t low = end, high = end, gap = end;
    for (size_t i = begin; i < end; ++i) {
      const double y = points[i].second;
      if (!std::isfinite(y)) {
        gap = std::min(gap, i);
        continue;
      }
      if (low == end || y < points[low].second) low = i;
      if (high == end || y > points[high].second) high = i;
    }
    for (size_t i : std::set{low, high, gap}) {
      if (i < end) kept.push_back(points[i]);
    }
    begin = end;
  }
  return kept;
}

std::vector<std::pair<double, double>> smooth_points(
    const std::vector<std::pair<double, double>>& points, double span) {
  auto out = points;
  double mean = 0, seen = 0;
  for (auto& [x, y] : out) {
    if (!std::isfinite(y)) continue;
    // The weight of a value is 2 / (span + 1), or 1 / count while that is larger.
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
  // With a single step or equal values the range is extended, so that the frame can divide by it.
  bool one_step = xs.low == xs.high;
  std::string span =
      one_step ? fmt::format("step {}", xs.low) : fmt::format("steps {} to {}", xs.low, xs.high);
  xs.widen();
  ys.widen();
  double margin = (ys.high - ys.low) * 0.05;
  Frame frame{static_cast<double>(chart.height), xs.low, xs.high, ys.low - margin,
              ys.high + margin};
  if (chart.from_zero && ys.low == 0) frame.y0 = 0;
  std::string words = html_text(description(chart, span));
  std::string out =
      "<figure><figcaption><h2>" + html_text(chart.title) + "</h2><p class=\"span\">" + span;
  out += (chart.note.empty() ? "" : "; " + html_text(chart.note)) + "</p></figcaption>" +
         legend(chart);
  out += "<div class=\"plot\">" + y_labels(chart, frame) + "<div class=\"area\">";
  out += fmt::format(
      R"(<svg viewBox="0 0 {} {}" height="{}" preserveAspectRatio="none" role="img" aria-label="{}" data-chart="{}">)",
      kWidth, chart.height, chart.height, words, html_text(hover_data(chart, frame)));
  out += grid(chart, frame) + lines(chart, frame) + level_lines(chart, frame);
  out += fmt::format(R"(<path class="cursor" d="M0 0V{}"/></svg>)", chart.height);
  return out + level_names(chart, frame) + x_labels(frame) + "</div></div></figure>\n";
}

}  // namespace ds
