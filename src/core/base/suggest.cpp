#include "core/base/suggest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace ds {

// Uses dynamic programming over prefixes with three rows, because a swap looks two rows back.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), size_t{0});
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

size_t edit_distance_below(std::string_view a, std::string_view b, size_t limit) {
  const size_t shorter = std::min(a.size(), b.size()), longer = std::max(a.size(), b.size());
  return longer - shorter >= limit ? limit : std::min(limit, edit_distance(a, b));
}

// One edit is allowed for every three letters, but at least two; the limit is one more.
size_t suggestion_limit(std::string_view word) { return std::max<size_t>(2, word.size() / 3) + 1; }

std::string suggest(std::string_view word, std::span<const std::string> names) {
  std::string best;
  size_t least = suggestion_limit(word);
  for (const std::string& name : names) {
    const size_t distance = edit_distance_below(word, name, least);
    if (distance >= least) continue;
    best = name;
    least = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names) {
  const std::string near = suggest(word, names);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

}  // namespace ds
