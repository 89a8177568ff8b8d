// Implements strip_licence: which text is a comment, and which comments are removed.
#include "data/licence.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/ascii.h"

namespace ds {
namespace {

// Returns the rest of the line from `at` on, with its line end.
std::string_view line_at(std::string_view text, size_t at) {
  return text.substr(at, text.find('\n', at) == std::string_view::npos
                             ? std::string_view::npos
                             : text.find('\n', at) + 1 - at);
}

// Returns whether a line is a shell comment, not a preprocessor line.
bool is_hash_comment(std::string_view line) {
  return line.starts_with('#') &&
         (line.size() == 1 || std::string_view(" \t!#\r\n").find(line[1]) != line.npos);
}

// Returns the end of the comment block that begins at `at`, or `at` if none begins there.
size_t block_end(std::string_view text, size_t at) {
  std::string_view rest = text.substr(at);
  if (rest.starts_with("/*")) {
    size_t close = rest.find("*/", 2);
    return close == rest.npos ? at : at + close + 2;
  }
  bool slashes = rest.starts_with("//");
  while (at < text.size()) {
    std::string_view line = line_at(text, at);
    if (slashes ? !line.starts_with("//") : !is_hash_comment(line)) break;
    at += line.size();
  }
  return at;
}

// Returns whether a comment contains any of three words that identify a licence; other comments,
// such as documentation, are text to learn.
bool states_licence(std::string_view comment) {
  std::string lower = ascii_lower(comment);
  constexpr std::array<std::string_view, 3> words{"copyright", "license", "licence"};
  return std::ranges::any_of(words,
                             [&](std::string_view word) { return lower.find(word) != lower.npos; });
}

size_t skip_space(std::string_view text, size_t at) {
  size_t found = text.find_first_not_of(" \t\r\n", at);
  return found == text.npos ? text.size() : found;
}

}  // namespace

// Walks over leading comment blocks and stops at the first line that is not a comment.
std::string strip_licence(const std::string& text) {
  std::string kept;
  size_t at = 0;
  while (true) {
    size_t begin = skip_space(text, at);
    size_t end = block_end(text, begin);
    if (end == begin) break;
    if (states_licence(std::string_view(text).substr(begin, end - begin))) {
      at = skip_space(text, end);
    } else {
      kept.append(text, at, end - at);
      at = end;
    }
  }
  return kept + text.substr(at);
}

}  // namespace ds
