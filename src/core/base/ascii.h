#pragma once
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

// ASCII letters, digits, words and numbers, independent of the host's locale. tools/check_text.py
// refuses the functions of the C library that depend on the locale.
namespace ds {

constexpr bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
constexpr char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

inline std::string ascii_lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = ascii_lower(c);
  return out;
}

// Returns the parts of a text between blanks, tabs and line ends.
inline std::vector<std::string_view> ascii_words(std::string_view text) {
  constexpr std::string_view spaces = " \t\r\n";
  std::vector<std::string_view> out;
  for (size_t begin = 0; (begin = text.find_first_not_of(spaces, begin)) != text.npos;) {
    const size_t end = std::min(text.find_first_of(spaces, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return out;
}

// Parses a whole text as one number. Returns nothing if the number does not fit the type, or if the
// text has a leading "+", blanks or trailing characters.
template <typename Number>
std::optional<Number> ascii_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace ds
