#pragma once
#include <string>
#include <vector>

namespace ds {

// A horizontal bar in an HTML list, with name, bar and value in one row; on a phone, the bar is in
// a separate row. Colors are those of chart.h.
struct Bar {
  std::string name;
  double value = 0;
  // The part of `value` that is drawn in full color; the rest is pale.
  double part = 0;
  std::string text;
  int colour = 1;
};
// Returns the list. `full` is the value of a bar that has the full width.
std::string bar_list(const std::vector<Bar>& bars, double full);

// These return a row of such a list, and a list of such rows. `content` is placed between name and
// value. `longest` is the length of the longest value in bytes. The width of the value column grows
// with this length in coarse steps, so that the columns of most lists on a page align.
std::string bar_row(const std::string& name, const std::string& content, const std::string& value);
std::string list_of_rows(const std::string& rows, size_t longest);

}  // namespace ds
