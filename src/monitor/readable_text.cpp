#include "monitor/readable_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "core/base/bytes_text.h"
#include "core/base/error.h"
#include "core/base/utf8.h"

namespace ds {
// The limit is 999.5 rather than 1000, so that rounding to three digits never yields "1000k".
std::string count_text(double count) {
  if (!(std::abs(count) >= 999.5)) return fmt::format("{:.0f}", count);
  constexpr const char* units[] = {"k", "M", "G", "T", "P"};
  double x = count / 1000;
  size_t unit = 0;
  while (std::abs(x) >= 999.5 && unit + 1 < std::size(units)) {
    x /= 1000;
    ++unit;
  }
  return three_digits(x) + units[unit];
}

// An estimate above 1e12 seconds is meaningless.
std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) return "-:--";
  auto total = static_cast<int64_t>(seconds + 0.5);
  int64_t days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0) return fmt::format("{}d {:02}:{:02}", days, hours, minutes);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, total % 60);
  return fmt::format("{}:{:02}", minutes, total % 60);
}

// The limits are the values from which rounding to three digits would yield the next unit.
std::string time_text(double seconds) {
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

std::string after_step(int64_t step) {
  return step == 0 ? "before the first step" : fmt::format("after step {}", step);
}

std::string baseline_text(std::string_view name) {
  return name == "gzip" ? "gzip -9" : fmt::format("{} of tokens", name);
}

// Control characters other than line feeds and tabs are replaced as well, because HTML does not
// allow them.
std::string html_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    char c = text.front();
    size_t length = utf8_sequence(text);
    bool hidden = length > 0 && is_control(utf8_first(text)) && c != '\n' && c != '\t';
    if (length == 0 || hidden) {
      out += "\xef\xbf\xbd";  // U+FFFD
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

}  // namespace ds
