#include <algorithm>
#include <string_view>

#include "core/config/schema.h"

namespace ds {
namespace {

// Edit distance with transposition of neighbours (optimal string alignment).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string_view parent(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view leaf(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::string nearest_path(const std::string& unknown, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, leaf(unknown).size() / 3) + 1;
  for (const std::string& path : known) {
    if (parent(path) != parent(unknown)) continue;
    // A distance is at least the difference of the lengths: a key of megabytes is near to nothing.
    const size_t a = leaf(unknown).size(), b = leaf(path).size();
    if (std::max(a, b) - std::min(a, b) >= best_distance) continue;
    const size_t d = distance(leaf(unknown), leaf(path));
    if (d < best_distance) {
      best = path;
      best_distance = d;
    }
  }
  if (!best.empty()) return best;
  for (const std::string& path : known) {
    if (leaf(path) == leaf(unknown)) return path;
  }
  return "";
}

}  // namespace ds
