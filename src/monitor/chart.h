#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ds {

// Inline SVG. Colours are the classes c1 to c6 of the report's style sheet.

enum class Unit { number, count, bytes, scientific };
std::string unit_text(double value, Unit unit);

struct Series {
  std::string name;
  int colour = 1;
  std::vector<std::pair<double, double>> points;  // ascending x; a y that is not finite breaks the line
  bool faint = false;                             // background of another series; not in the legend
  bool dots = false;                              // a mark at each point
};

struct LineChart {
  std::string title, x_name;
  Unit unit = Unit::number;
  std::vector<Series> series;
  std::vector<std::pair<std::string, double>> levels;  // dashed horizontal lines with a name
  bool from_zero = false;
  int width = 460, height = 220;  // CSS pixels
};
// "" when there is no finite point.
std::string line_chart(const LineChart& chart);

// Horizontal bars, one under the other.
struct Bar {
  std::string name;
  double value = 0;
  double part = 0;   // of value, drawn darker
  double mark = 0;   // a line across at this value; 0: none
  std::string text;  // right of the bar
  int colour = 1;
};
std::string bar_chart(const std::vector<Bar>& bars, int width = 460);

// Positions of axis labels: at most `wanted` + 1 multiples of 1, 2 or 5 times a power of ten in [low, high].
std::vector<double> axis_ticks(double low, double high, int wanted);

// At most 2 * buckets points with the same outline: the extremes of each bucket of x. Points that are not
// finite are kept once per gap.
std::vector<std::pair<double, double>> thin_points(const std::vector<std::pair<double, double>>& points,
                                                   size_t buckets);

// Exponential moving average with the given span; the plain mean until that is as long.
std::vector<std::pair<double, double>> smooth_points(const std::vector<std::pair<double, double>>& points,
                                                     double span);

}  // namespace ds
