// Draws the picture of plans, an SVG of fixed size. All columns have the same scales of time and
// bytes, so that plans can be compared visually. A step may have thousands of instructions, so
// neighbors of the same phase that would touch on the screen are merged into one block.
#include "monitor/plan_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>

#include "core/base/bytes_text.h"
#include "core/base/contains.h"
#include "monitor/chart.h"
#include "monitor/readable_text.h"

namespace ds {
namespace {

// Widths in pixels: left margin, one of several columns, a single column, the gap between columns,
// and right margin.
constexpr int kLeft = 62, kColumn = 272, kOnly = 640, kGap = 20, kRight = 18;
// Heights in pixels: the heading, a lane, an area, the gap above an area, and the axis.
constexpr int kTop = 74, kLane = 16, kAreaHeight = 110, kAreaGap = 26, kAxis = 20;
// The smallest width of a block in pixels.
constexpr double kSmallest = 0.4;
// A tier smaller than this share of the largest tier has no row; its bytes are only printed.
constexpr double kWorthARow = 0.02;
// Blocks of the same phase that are closer than this many pixels are merged.
constexpr double kNear = 0.25;

const std::map<std::string, const char*>& phase_colours() {
  static const auto& colours = *new std::map<std::string, const char*>{
      {"forward", "#3b6fb6"}, {"backward", "#c8553d"}, {"update", "#5b8c5a"}};
  return colours;
}

const char* colour_of(const std::string& phase) {
  auto found = phase_colours().find(phase);
  return found == phase_colours().end() ? "#777777" : found->second;
}

// A color on light pages, and the color that replaces it on dark pages.
struct Colour {
  const char* light;
  const char* dark;
};
constexpr Colour kColours[] = {
    {"#ffffff", "#1a2028"}, {"#f3f4f7", "#272f3a"}, {"#111111", "#f0f3f7"}, {"#333333", "#d5dae2"},
    {"#555555", "#b8c0cc"}, {"#777777", "#a3adba"}, {"#999999", "#8a93a3"}, {"#3b6fb6", "#6ea1f5"},
    {"#c8553d", "#e8826b"}, {"#5b8c5a", "#7fb87d"}, {"#8a93a3", "#7d8797"}, {"#cfd6e2", "#4a5565"},
    {"#c0392b", "#ff8370"}};

std::string dark_colours() {
  std::string rules;
  for (const Colour& colour : kColours) {
    for (const char* attribute : {"fill", "stroke"}) {
      rules += fmt::format(R"(.plan [{0}="{1}"]{{{0}:{2}}})", attribute, colour.light, colour.dark);
    }
  }
  return "<style>@media (prefers-color-scheme: dark){" + rules + "}</style>";
}

std::string label(double x, double y, const std::string& anchor, int size, const std::string& text,
                  const char* colour = "#333333") {
  return fmt::format(
      R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="{}" fill="{}">{}</text>)", x, y,
      anchor, size, colour, html_text(text));
}

void add_name(std::vector<std::string>& names, const std::string& name) {
  if (!contains(names, name)) names.push_back(name);
}

// A picture that is being drawn. The constructor collects the rows of all columns, since columns
// may have different queues and tiers; svg() then draws the columns.
class Picture {
 public:
  explicit Picture(const std::vector<PlanColumn>& columns)
      : columns_(columns), column_width_(columns.size() == 1 ? kOnly : kColumn) {
    for (const PlanColumn& column : columns) {
      seconds_ = std::max(seconds_, column.seconds);
      for (const PlanColumn::Lane& lane : column.lanes) add_name(queues_, lane.queue);
      for (const PlanColumn::Area& area : column.areas) most_ = std::max(most_, area.arena);
    }
    for (const PlanColumn& column : columns) {
      for (const PlanColumn::Area& area : column.areas) {
        bool shown = static_cast<double>(area.arena) >= kWorthARow * static_cast<double>(most_);
        if (shown && area.arena > 0) add_name(tiers_, area.tier);
      }
    }
    lanes_end_ = kTop + kLane * static_cast<int>(queues_.size());
    height_ = lanes_end_ + (kAreaGap + kAreaHeight) * static_cast<int>(tiers_.size()) + kAxis + 24;
    width_ = kLeft + (column_width_ + kGap) * static_cast<int>(columns.size()) - kGap + kRight;
  }

  std::string svg(const std::string& note) {
    out_ = fmt::format(
        R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" class="plan" role="img" )"
        R"(aria-label="Plans of a training step: queues and memory over time" font-family="system-ui, sans-serif">{2})"
        R"(<rect width="{0}" height="{1}" rx="8" fill="#ffffff"/>)",
        width_, height_, dark_colours());
    legend();
    for (size_t q = 0; q < queues_.size(); ++q) {
      out_ += label(kLeft - 8, lane_top(q) + 11, "end", 11, queues_[q]);
    }
    for (size_t t = 0; t < tiers_.size(); ++t) {
      out_ += label(kLeft - 8, area_top(t) + 10, "end", 11, tiers_[t]);
      out_ += label(kLeft - 8, area_top(t) + 24, "end", 10, bytes_text(most_), "#777777");
    }
    for (size_t c = 0; c < columns_.size(); ++c) column(c);
    out_ += label(kLeft, height_ - 8, "start", 10, note, "#777777");
    return out_ + "</svg>\n";
  }

 private:
  int lane_top(size_t q) const { return kTop + kLane * static_cast<int>(q); }
  int area_top(size_t t) const {
    return lanes_end_ + kAreaGap + (kAreaGap + kAreaHeight) * static_cast<int>(t);
  }
  // Returns the x coordinate of a time in a column. All columns have the scale of the longest step.
  double x_of(size_t column, double seconds) const {
    return kLeft + (column_width_ + kGap) * static_cast<double>(column) +
           (seconds_ > 0 ? column_width_ * seconds / seconds_ : 0);
  }
  // Returns the y coordinate of a number of bytes in the area of a tier. All areas have the scale
  // of the largest tier.
  double y_of(size_t tier, int64_t bytes) const {
    double share = most_ > 0 ? static_cast<double>(bytes) / static_cast<double>(most_) : 0;
    return area_top(tier) + kAreaHeight * (1 - std::min(share, 1.0));
  }

  void legend() {
    double x = kLeft;
    for (const char* phase : {"forward", "backward", "update"}) {
      out_ += fmt::format(R"(<rect x="{:.0f}" y="14" width="11" height="11" fill="{}"/>)", x,
                          colour_of(phase));
      out_ += label(x + 16, 24, "start", 12, phase);
      x += 86;
    }
    for (auto [fill, name] :
         {std::pair{"#8a93a3", "always held"}, {"#cfd6e2", "held for a while"}}) {
      out_ += fmt::format(R"(<rect x="{:.0f}" y="14" width="11" height="11" fill="{}"/>)", x, fill);
      out_ += label(x + 16, 24, "start", 12, name);
      x += 116;
    }
    out_ += fmt::format(
        R"(<line x1="{0:.0f}" y1="19.5" x2="{1:.0f}" y2="19.5" stroke="#c0392b" stroke-dasharray="4 3"/>)",
        x, x + 16);
    out_ += label(x + 21, 24, "start", 12, "bytes taken");
  }

  // Draws a column: its title and figures, its lanes and areas, and the time axis.
  void column(size_t c) {
    const PlanColumn& plan = columns_[c];
    out_ += label(x_of(c, 0), kTop - 26, "start", 14, plan.title, "#111111");
    std::string facts = plan.seconds >= 1 ? fmt::format("step {:.2f} s", plan.seconds)
                                          : fmt::format("step {:.1f} ms", plan.seconds * 1e3);
    for (const PlanColumn::Area& area : plan.areas) {
      if (area.arena > 0) facts += fmt::format(", {} {}", area.tier, bytes_text(area.arena));
    }
    out_ += label(x_of(c, 0), kTop - 10, "start", 11, facts, "#555555");
    for (size_t q = 0; q < queues_.size(); ++q) lane(c, q);
    for (size_t t = 0; t < tiers_.size(); ++t) area(c, t);
    axis(c);
  }

  void lane(size_t c, size_t q) {
    out_ += fmt::format(R"(<rect x="{:.1f}" y="{}" width="{}" height="{}" fill="#f3f4f7"/>)",
                        x_of(c, 0), lane_top(q) + 1, column_width_, kLane - 3);
    for (const PlanColumn::Lane& row : columns_[c].lanes) {
      if (row.queue == queues_[q]) blocks(c, lane_top(q) + 1, row.blocks);
    }
  }

  // Draws the blocks of a lane, merging neighbors of the same phase.
  void blocks(size_t c, int y, const std::vector<PlanColumn::Block>& all) {
    for (size_t i = 0; i < all.size();) {
      double begin = x_of(c, all[i].begin), end = x_of(c, all[i].end);
      size_t next = i + 1;
      while (next < all.size() && all[next].phase == all[i].phase &&
             x_of(c, all[next].begin) - end < kNear) {
        end = x_of(c, all[next++].end);
      }
      std::string name = next - i > 1
                             ? fmt::format("{} operations, first {}", next - i, all[i].name)
                             : all[i].name;
      out_ += fmt::format(
          R"(<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}" fill="{}"><title>{}</title></rect>)",
          begin, y, std::max(end - begin, kSmallest), kLane - 3, colour_of(all[i].phase),
          html_text(name));
      i = next;
    }
  }

  // Draws the bytes of a tier as a step function, the bytes that are always held as a band, and the
  // planned total as a dashed line.
  void area(size_t c, size_t t) {
    double left = x_of(c, 0), right = x_of(c, seconds_), floor = y_of(t, 0);
    out_ += fmt::format(R"(<rect x="{:.1f}" y="{}" width="{}" height="{}" fill="#f3f4f7"/>)", left,
                        area_top(t), column_width_, kAreaHeight);
    for (const PlanColumn::Area& one : columns_[c].areas) {
      if (one.tier != tiers_[t] || one.arena == 0) continue;
      std::string path = fmt::format("M{:.1f} {:.1f}", left, floor);
      for (size_t i = 0; i < one.bytes.size(); ++i) {
        double y = y_of(t, one.bytes[i].second);
        path += fmt::format("L{:.1f} {:.1f}", x_of(c, one.bytes[i].first), y);
        double next = i + 1 < one.bytes.size() ? one.bytes[i + 1].first : columns_[c].seconds;
        path += fmt::format("L{:.1f} {:.1f}", x_of(c, next), y);
      }
      double end = x_of(c, columns_[c].seconds);
      out_ += fmt::format(R"(<path d="{}L{:.1f} {:.1f}Z" fill="#cfd6e2"/>)", path, end, floor);
      double held = y_of(t, one.persistent), taken = y_of(t, one.arena);
      out_ += fmt::format(
          R"(<rect x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill="#8a93a3"/>)", left,
          held, end - left, floor - held);
      out_ += fmt::format(
          R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#c0392b" stroke-dasharray="4 3"/>)",
          left, taken, right, taken);
    }
  }

  // Draws the ticks of the time axis below a column, in seconds or milliseconds depending on the
  // longest step.
  void axis(size_t c) {
    double y = height_ - kAxis - 20;
    bool long_step = seconds_ >= 1;
    double unit = long_step ? 1 : 1e-3;
    for (double tick : axis_ticks(0, seconds_ / unit, 4)) {
      double x = x_of(c, tick * unit);
      out_ += fmt::format(
          R"(<line x1="{0:.1f}" y1="{1:.0f}" x2="{0:.1f}" y2="{2:.0f}" stroke="#999999"/>)", x, y,
          y + 4);
      out_ += label(x, y + 15, "middle", 10,
                    fmt::format("{:g}{}", tick,
                                tick > 0    ? ""
                                : long_step ? " s"
                                            : " ms"),
                    "#777777");
    }
  }

  const std::vector<PlanColumn>& columns_;
  const int column_width_;
  std::vector<std::string> queues_, tiers_;
  double seconds_ = 0;
  int64_t most_ = 0;
  int lanes_end_ = 0, height_ = 0, width_ = 0;
  std::string out_;
};

}  // namespace

std::string plan_picture(const std::vector<PlanColumn>& columns, const std::string& note) {
  return Picture(columns).svg(note);
}

}  // namespace ds
