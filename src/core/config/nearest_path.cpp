#include "core/config/nearest_path.h"

#include <algorithm>
#include <string_view>

#include "core/base/suggest.h"

namespace ds {
namespace {

std::string_view parent(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

std::string_view leaf(std::string_view path) { return path.substr(path.rfind('.') + 1); }

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

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

std::string resembling_path(const std::string& unknown, const std::vector<std::string>& known) {
  std::string best, meant = lower_case(unknown);
  size_t best_distance = std::max<size_t>(1, unknown.size() / 4) + 1;
  for (const std::string& path : known) {
    if (!parent(path).empty()) continue;
    const size_t d = edit_distance_below(meant, path, best_distance);
    if (d < best_distance) {
      best = path;
      best_distance = d;
    }
  }
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
