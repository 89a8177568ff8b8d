#include "engine/numerics.h"

#include <fmt/core.h>

#include <algorithm>

namespace ds {
namespace {

// Only the value of this part may have spaces, so the part is the last one.
constexpr std::string_view kLast = "quantized";

// Removes the first word from `text` and returns it.
std::string_view take_word(std::string_view& text) {
  size_t end = std::min(text.find(' '), text.size());
  std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

NumericsParts parts_of(std::string_view text) {
  NumericsParts parts;
  while (!text.empty()) {
    std::string_view name = take_word(text);
    std::string_view value = name == kLast ? std::exchange(text, {}) : take_word(text);
    parts.emplace_back(name, value);
  }
  return parts;
}

std::string value_of(const NumericsParts& parts, const std::string& name) {
  auto found = std::find_if(parts.begin(), parts.end(),
                            [&](const auto& part) { return part.first == name; });
  return found == parts.end() ? "none" : found->second;
}

}  // namespace

std::string numerics_text(const NumericsParts& parts) {
  std::string text;
  for (const auto& [name, value] : parts) {
    std::string word = value;
    if (name != kLast) std::replace(word.begin(), word.end(), ' ', '_');
    text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, word);
  }
  return text;
}

std::string numerics_difference(PlacedNumerics first, PlacedNumerics second) {
  // Parts that only `first` has are listed after those of `second`.
  NumericsParts theirs = parts_of(first.key), ours = parts_of(second.key), all = ours;
  for (const auto& part : theirs) {
    if (value_of(ours, part.first) == "none") all.push_back(part);
  }
  std::string out;
  for (const auto& [name, value] : all) {
    std::string before = value_of(theirs, name), now = value_of(ours, name);
    if (before == now) continue;
    out += fmt::format("{}{} {} {}, {} {}", out.empty() ? "" : "; ", name, before, first.place, now,
                       second.place);
  }
  return out;
}

}  // namespace ds
