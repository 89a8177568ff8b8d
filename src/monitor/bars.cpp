#include "monitor/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "monitor/readable_text.h"

namespace ds {

std::string bar_row(const std::string& name, const std::string& content, const std::string& value) {
  return "<li><span class=\"label\">" + html_text(name) + "</span>" + content +
         "<span class=\"value\">" + html_text(value) + "</span></li>";
}

// `ch` is the width of the digit 0. Values also contain narrower characters, hence 7/8. Widths are
// rounded to multiples of 4 so that most lists have the same one.
std::string list_of_rows(const std::string& rows, size_t longest) {
  return fmt::format(R"(<ul class="bars" style="--value:{}ch">)", (longest * 7 / 8 + 4) / 4 * 4) +
         rows + "</ul>";
}

// Draws two bars on top of each other: `value` in pale and `part` in full color.
std::string bar_list(const std::vector<Bar>& bars, double full) {
  std::string rows;
  size_t longest = 0;
  auto percent = [&](double value) {
    return full > 0 ? std::clamp(value / full, 0.0, 1.0) * 100 : 0;
  };
  for (const Bar& bar : bars) {
    std::string track = "<span class=\"track\" aria-hidden=\"true\">";
    for (auto [kind, value] : {std::pair("bar pale", bar.value), std::pair("bar", bar.part)}) {
      if (!(value > 0)) continue;
      track += fmt::format(R"(<i class="{} c{}" style="width:{:.2f}%"></i>)", kind, bar.colour,
                           percent(value));
    }
    longest = std::max(longest, bar.text.size());
    rows += bar_row(bar.name, track + "</span>", bar.text);
  }
  return rows.empty() ? rows : list_of_rows(rows, longest);
}

}  // namespace ds
