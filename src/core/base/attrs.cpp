#include "core/base/attrs.h"

#include <charconv>
#include <system_error>

#include "core/base/error.h"

namespace ds {

Attrs::Attrs(std::initializer_list<std::pair<std::string, Value>> items) : items_(items) {}

void Attrs::set(std::string_view name, Value value) {
  for (auto& [key, old] : items_) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  items_.emplace_back(std::string(name), std::move(value));
}

const Attrs::Value* Attrs::find(std::string_view name) const {
  for (const auto& [key, value] : items_) {
    if (key == name) return &value;
  }
  return nullptr;
}

int64_t Attrs::integer(std::string_view name) const {
  const Value* v = find(name);
  if (v && std::holds_alternative<int64_t>(*v)) return std::get<int64_t>(*v);
  raise(DS_ERROR_INVALID_ARGUMENT, "attribute '{}' must be an integer, got attributes {}", name,
        print());
}

double Attrs::real(std::string_view name) const {
  const Value* v = find(name);
  if (v && std::holds_alternative<int64_t>(*v)) return static_cast<double>(std::get<int64_t>(*v));
  if (v && std::holds_alternative<double>(*v)) return std::get<double>(*v);
  raise(DS_ERROR_INVALID_ARGUMENT, "attribute '{}' must be a number, got attributes {}", name,
        print());
}

const std::string& Attrs::text(std::string_view name) const {
  const Value* v = find(name);
  if (v && std::holds_alternative<std::string>(*v)) return std::get<std::string>(*v);
  raise(DS_ERROR_INVALID_ARGUMENT, "attribute '{}' must be a string, got attributes {}", name,
        print());
}

const std::vector<int64_t>& Attrs::integers(std::string_view name) const {
  const Value* v = find(name);
  if (v && std::holds_alternative<std::vector<int64_t>>(*v))
    return std::get<std::vector<int64_t>>(*v);
  raise(DS_ERROR_INVALID_ARGUMENT, "attribute '{}' must be a list of integers, got attributes {}",
        name, print());
}

namespace {

std::string print_integers(const std::vector<int64_t>& list) {
  std::string out = "[";
  for (int64_t i : list) out += (out.size() > 1 ? "," : "") + std::to_string(i);
  return out + "]";
}

// Parses a list of integers such as "[4,2]". An error names the attribute.
std::vector<int64_t> parse_integers(std::string_view name, std::string_view word) {
  std::vector<int64_t> list;
  const char *at = word.data() + 1, *end = word.data() + word.size() - 1;
  while (at < end) {
    auto [next, code] = std::from_chars(at, end, list.emplace_back());
    bool whole = code == std::errc() && (next == end || (*next == ',' && next + 1 < end));
    require(whole, "attribute '{}' must be integers like [4,2], got '{}'", name, word);
    at = next == end ? end : next + 1;
  }
  return list;
}

// Writes a real so that parse() does not read it back as an integer: a whole number gets ".0".
std::string print_real(double x) {
  char buffer[40];
  auto [end, code] = std::to_chars(buffer, buffer + sizeof buffer, x);
  std::string out(buffer, end);
  if (out.find_first_of(".en") == std::string::npos) out += ".0";
  return out;
}

}  // namespace

std::string Attrs::print() const {
  if (items_.empty()) return "";
  std::string out = "{";
  for (const auto& [name, value] : items_) {
    if (out.size() > 1) out += ' ';
    out += name + "=";
    if (const auto* i = std::get_if<int64_t>(&value)) {
      out += std::to_string(*i);
    } else if (const auto* d = std::get_if<double>(&value)) {
      out += print_real(*d);
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) {
      out += print_integers(*list);
    } else {
      out += '"' + std::get<std::string>(value) + '"';
    }
  }
  return out + "}";
}

// Strings have no escapes, so a value must not contain a quote.
Attrs Attrs::parse(std::string_view text) {
  Attrs attrs;
  if (text.empty()) return attrs;
  require(text.front() == '{' && text.back() == '}',
          "attributes must be like {{a=1 b=0.5}}, got '{}'", text);
  std::string_view rest = text.substr(1, text.size() - 2);
  while (!rest.empty()) {
    if (rest.front() == ' ') {
      rest.remove_prefix(1);
      continue;
    }
    size_t equal = rest.find('=');
    require(equal != std::string_view::npos && equal + 1 < rest.size(),
            "attribute must be name=value, got '{}'", rest);
    std::string_view name = rest.substr(0, equal);
    rest.remove_prefix(equal + 1);
    if (rest.front() == '"') {
      size_t close = rest.find('"', 1);
      require(close != std::string_view::npos, "attribute '{}' has no closing quote in '{}'", name,
              text);
      attrs.set(name, std::string(rest.substr(1, close - 1)));
      rest.remove_prefix(close + 1);
      continue;
    }
    std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(word.size());
    if (word.starts_with('[') && word.ends_with(']') && word.size() > 1) {
      attrs.set(name, parse_integers(name, word));
      continue;
    }
    // An integer that fits int64 stays an integer; everything else must be a real.
    int64_t i = 0;
    double d = 0;
    auto whole = std::from_chars(word.data(), word.data() + word.size(), i);
    if (whole.ec == std::errc() && whole.ptr == word.data() + word.size()) {
      attrs.set(name, i);
      continue;
    }
    auto real = std::from_chars(word.data(), word.data() + word.size(), d);
    require(real.ec == std::errc() && real.ptr == word.data() + word.size(),
            "attribute '{}' must be a number, got '{}'", name, word);
    attrs.set(name, d);
  }
  return attrs;
}

}  // namespace ds
