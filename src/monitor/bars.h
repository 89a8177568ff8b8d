#pragma once
#include <string>
#include <vector>

namespace ds {

// Horizontal bars as an HTML list: name, bar and value of each in a row; on a phone the bar has a
// row of its own. Colours as in chart.h.
struct Bar {
  std::string name;
  double value = 0;
  double part = 0;  // of value: drawn in full colour, the rest pale
  std::string text;
  int colour = 1;
};
// full: the value of a bar over the whole width.
std::string bar_list(const std::vector<Bar>& bars, double full);

// A row of such a list, and the list of such rows. content: what stands between name and value.
// longest: bytes of the longest value. The width of values is estimated from it in steps, so that
// the columns of most lists on a page agree.
std::string bar_row(const std::string& name, const std::string& content, const std::string& value);
std::string list_of_rows(const std::string& rows, size_t longest);

}  // namespace ds
