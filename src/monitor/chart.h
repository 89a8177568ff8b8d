#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ds {

// Line charts as HTML with inline SVG. The lines stretch with the width of the page. All text is
// placed outside the SVG, at percentages of its width, so that it keeps its size on a phone. Colors
// are the classes c1 to c6 of the report's style sheet.

// How the values of an axis are printed: as they are, or with a suffix for thousands.
enum class Unit { number, count };
// Returns, for example, "0.0015" or "15k".
std::string unit_text(double value, Unit unit);

struct Series {
  std::string name;
  int colour = 1;
  // Ascending in x. A y that is not finite breaks the line.
  std::vector<std::pair<double, double>> points;
  // Whether the line is only the background of another series, and left out of the legend.
  bool faint = false;
  // Whether a dot is drawn at each point.
  bool dots = false;
};

struct LineChart {
  std::string title;
  // Text after the range of steps, such as "nats per token"; may be "".
  std::string note;
  Unit unit = Unit::number;
  // One line for each series; x is the step.
  std::vector<Series> series;
  // Dashed horizontal lines, each with its name.
  std::vector<std::pair<std::string, double>> levels;
  // Whether the y axis begins at zero.
  bool from_zero = false;
  // Height of the plot in CSS pixels.
  int height = 220;
};
// Returns a figure with title, range of steps, legend and plot, or "" if no point is finite.
std::string line_chart(const LineChart& chart);

// Returns the positions of axis labels: multiples of 1, 2 or 5 times a power of ten in [low, high],
// at most `wanted` + 1 of them.
std::vector<double> axis_ticks(double low, double high, int wanted);

// Returns at most 3 * buckets points with the same outline: of each bucket of consecutive points,
// the minimum, the maximum, and the first point that is not finite, which interrupts the line.
std::vector<std::pair<double, double>> thin_points(
    const std::vector<std::pair<double, double>>& points, size_t buckets);

// Returns an exponential moving average with the given span. The first points, up to half the span,
// are averaged with equal weights.
std::vector<std::pair<double, double>> smooth_points(
    const std::vector<std::pair<double, double>>& points, double span);

}  // namespace ds
