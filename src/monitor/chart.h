#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ds {

// Line charts as HTML with inline SVG. The lines stretch with the width of the page; every text
// stands outside the picture at a percentage of its sides, so that it keeps its size on a phone.
// Colours are the classes c1 to c6 of the report's style sheet.

enum class Unit { number, count };
std::string unit_text(double value, Unit unit);  // "0.0015", "15k"

struct Series {
  std::string name;
  int colour = 1;
  std::vector<std::pair<double, double>>
      points;          // ascending x; a y that is not finite breaks the line
  bool faint = false;  // background of another series; not in the legend
  bool dots = false;   // a mark at each point
};

struct LineChart {
  std::string title;
  std::string note;  // after the span, "nats per token"; may be ""
  Unit unit = Unit::number;
  std::vector<Series> series;                          // over steps
  std::vector<std::pair<std::string, double>> levels;  // dashed horizontal lines with a name
  bool from_zero = false;
  int height = 220;  // CSS pixels of the plot
};
// A figure with a heading, the span of its steps, a legend and the plot. "" when there is no finite
// point.
std::string line_chart(const LineChart& chart);

// Positions of axis labels: at most `wanted` + 1 multiples of 1, 2 or 5 times a power of ten in
// [low, high].
std::vector<double> axis_ticks(double low, double high, int wanted);

// At most 2 * buckets points with the same outline: the extremes of each bucket of x. Points that
// are not finite are kept once per gap.
std::vector<std::pair<double, double>> thin_points(
    const std::vector<std::pair<double, double>>& points, size_t buckets);

// Exponential moving average with the given span; the plain mean until that is as long.
std::vector<std::pair<double, double>> smooth_points(
    const std::vector<std::pair<double, double>>& points, double span);

}  // namespace ds
