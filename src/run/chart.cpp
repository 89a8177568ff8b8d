#include "run/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "monitor/text.h"

namespace ds {
namespace {

constexpr double kWidth = 720, kHeight = 280, kLeft = 64, kRight = 16, kTop = 34, kBottom = 40;

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
};

bool drawn(const std::pair<double, double>& p) { return std::isfinite(p.first) && std::isfinite(p.second); }

// A step of 1, 2 or 5 times a power of ten that cuts the range into about `parts`.
double tick_step(const Range& range, int parts) {
  double raw = (range.high - range.low) / parts;
  double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

// Data coordinates to pixels.
struct Frame {
  Range x, y;
  double px(double v) const { return kLeft + (v - x.low) / (x.high - x.low) * (kWidth - kLeft - kRight); }
  double py(double v) const {
    return kHeight - kBottom - (v - y.low) / (y.high - y.low) * (kHeight - kTop - kBottom);
  }
};

Frame fit(const std::vector<Series>& series) {
  Frame frame;
  for (const Series& s : series) {
    for (const auto& p : s.points) {
      if (!drawn(p)) continue;
      frame.x.add(p.first);
      frame.y.add(p.second);
    }
  }
  if (frame.x.high <= frame.x.low) frame.x.high = frame.x.low + 1;
  double margin = std::max((frame.y.high - frame.y.low) * 0.05, 1e-9 + std::abs(frame.y.high) * 0.01);
  frame.y.low -= margin;
  frame.y.high += margin;
  return frame;
}

std::string grid(const Frame& frame) {
  std::string out;
  double step = tick_step(frame.y, 5);
  for (double v = std::ceil(frame.y.low / step) * step; v <= frame.y.high; v += step) {
    out += fmt::format(
        "<line x1='{0}' x2='{1}' y1='{2:.1f}' y2='{2:.1f}' stroke='#ddd'/>"
        "<text x='{3}' y='{4:.1f}' text-anchor='end'>{5:.6g}</text>\n",
        kLeft, kWidth - kRight, frame.py(v), kLeft - 6, frame.py(v) + 4, std::abs(v) < step / 2 ? 0.0 : v);
  }
  step = std::max(1.0, tick_step(frame.x, 8));
  for (double v = std::ceil(frame.x.low / step) * step; v <= frame.x.high; v += step) {
    out += fmt::format("<text x='{:.1f}' y='{}' text-anchor='middle'>{:.6g}</text>\n", frame.px(v),
                       kHeight - kBottom + 16, v);
  }
  return out;
}

std::string draw(const Frame& frame, const Series& series) {
  std::string line, dots;
  for (const auto& p : series.points) {
    if (!drawn(p)) continue;
    double x = frame.px(p.first), y = frame.py(p.second);
    line += fmt::format("{:.1f},{:.1f} ", x, y);
    if (series.markers)
      dots += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='3.5' fill='{}'/>", x, y, series.color);
  }
  return fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.6'/>{}\n", line,
                     series.color, dots);
}

}  // namespace

std::string line_chart(const std::string& title, const std::string& x_label, const std::string& y_label,
                       const std::vector<Series>& series) {
  Frame frame = fit(series);
  if (!std::isfinite(frame.x.low)) return "";
  std::string out = fmt::format(
      "<svg viewBox='0 0 {} {}' width='{}' role='img'><text x='{}' y='18' class='title'>{}</text>\n", kWidth,
      kHeight, kWidth, kLeft, html_text(title));
  out += grid(frame);
  double legend = kLeft + 220;
  for (const Series& s : series) {
    out += draw(frame, s);
    out += fmt::format("<text x='{}' y='18' fill='{}'>{}</text>\n", legend, s.color, html_text(s.name));
    legend += 24 + 7 * static_cast<double>(s.name.size());
  }
  out += fmt::format("<text x='{}' y='{}' text-anchor='middle'>{}</text><text x='4' y='{}'>{}</text></svg>\n",
                     (kLeft + kWidth) / 2, kHeight - 6, html_text(x_label), kTop - 4, html_text(y_label));
  return out;
}

}  // namespace ds
