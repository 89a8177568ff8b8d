// Finds suggestions for misspelt keys by the edit distance between last components. Distances are
// computed only within a section, because keys of different sections resemble each other
// (bf16.enabled, fp16.enabled).
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

// Returns the path in the section of `unknown` whose name is nearest to `meant`, at an edit
// distance below `limit`, or "".
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
  // Otherwise the name may belong to another section, if only one section has it.
  const auto same = [&](const std::string& path) { return leaf(path) == leaf(unknown); };
  const auto found = std::ranges::find_if(known, same);
  return std::ranges::count_if(known, same) == 1 ? *found : "";
}

std::string resembling_path(const std::string& unknown, const std::vector<std::string>& known) {
  const size_t limit = std::max<size_t>(1, unknown.size() / 4) + 1;
  const std::string best = closest(unknown, ascii_lower(unknown), limit, known);
  if (!best.empty()) return best;
  // The shortest name that is searched for inside known names. Shorter ones occur in too many.
  constexpr size_t kTelling = 8;
  for (const std::string& path : known) {
    const bool part = unknown.size() >= kTelling && parent(path).empty() &&
                      path.size() < 4 * unknown.size() && path.find(unknown) != std::string::npos;
    if (part || leaf(path) == unknown) return path;
  }
  return "";
}

}  // namespace ds
