#pragma once
#include <string>
#include <utility>
#include <vector>

namespace ds {

// A line of a chart; points with a NaN are left out.
struct Series {
  std::string name, color;
  std::vector<std::pair<double, double>> points;
  bool markers = false;  // dots instead of a line
};

// A line chart as an inline SVG element, axes from the data; "" when there is no point.
std::string line_chart(const std::string& title, const std::string& x_label, const std::string& y_label,
                       const std::vector<Series>& series);

}  // namespace ds
