#include "core/config/nearest_path.h"

#include <string_view>

#include "core/base/suggest.h"

namespace ds {
namespace {

std::string_view parent(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view leaf(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

std::string nearest_path(const std::string& unknown, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = suggestion_limit(leaf(unknown));
  for (const std::string& path : known) {
    if (parent(path) != parent(unknown)) continue;
    const size_t d = edit_distance_below(leaf(unknown), leaf(path), best_distance);
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
