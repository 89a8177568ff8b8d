#include "core/config/nearest_path.h"

#include <algorithm>
#include <string_view>

#include "core/base/ascii.h"
#include "core/base/suggest.h"
#include "core/config/values.h"

namespace ds {
namespace {

std::string_view parent(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view leaf(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// The path in the section of `unknown` whose name is nearest to `meant`, fewer than `limit` letters
// away; "".
std::string closest(const std::string& unknown, std::string_view meant, size_t limit,
                    const std::vector<std::string>& known) {
  std::string best;
  for (const std::string& path : known) {
    if (parent(path) != parent(unknown)) continue;
    const size_t d = edit_distance_below(meant, leaf(path), limit);
    if (d < limit) {
      best = path;
      limit = d;
    }
  }
  return best;
}

}  // namespace

std::string nearest_path(const std::string& unknown, const std::vector<std::string>& known) {
  const std::string best = closest(unknown, ascii_lower(std::string(leaf(unknown))),
                                   suggestion_limit(leaf(unknown)), known);
  if (!best.empty()) return best;
  // The same name in another section, where it is the only one.
  const auto same = [&](const std::string& path) { return leaf(path) == leaf(unknown); };
  const auto found = std::find_if(known.begin(), known.end(), same);
  return std::count_if(known.begin(), known.end(), same) == 1 ? *found : "";
}

std::string resembling_path(const std::string& unknown, const std::vector<std::string>& known) {
  const size_t limit = std::max<size_t>(1, unknown.size() / 4) + 1;
  const std::string best = closest(unknown, ascii_lower(unknown), limit, known);
  if (!best.empty()) return best;
  constexpr size_t kTelling = 8;  // a part of a name that is long enough to mean it
  for (const std::string& path : known) {
    const bool part = unknown.size() >= kTelling && parent(path).empty() &&
                      path.size() < 4 * unknown.size() && path.find(unknown) != std::string::npos;
    if (part || leaf(path) == unknown) return path;
  }
  return "";
}

}  // namespace ds
