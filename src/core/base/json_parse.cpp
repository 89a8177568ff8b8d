// Json::parse: nlohmann's lexer and grammar through its SAX interface; the document is built here.
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"

namespace ds {
namespace {

constexpr size_t max_depth = 200;

// Characters of the text; `*next` tells the handler how far the lexer has read.
struct TextIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  const char* at = nullptr;
  const char** next = nullptr;
  reference operator*() const { return *at; }
  TextIterator& operator++() {
    *next = ++at;
    return *this;
  }
  bool operator==(const TextIterator& other) const { return at == other.at; }
};

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(std::string_view text, std::string_view source)
      : text_(text), source_(source), next_(text.data()) {}

  TextIterator begin() { return {text_.data(), &next_}; }
  TextIterator end() { return {text_.data() + text_.size(), &next_}; }
  Json take() { return std::move(root_); }

  bool null() override { return add(Json()); }
  bool boolean(bool b) override { return add(Json(b)); }
  bool number_integer(int64_t i) override { return add(Json(i)); }
  bool number_unsigned(uint64_t u) override {
    return add(u <= uint64_t{INT64_MAX} ? Json(static_cast<int64_t>(u)) : Json(static_cast<double>(u)));
  }
  bool number_float(double d, const std::string&) override { return add(Json(d)); }
  bool string(std::string& s) override { return add(Json(std::move(s))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json(Json::Object())); }
  bool start_array(size_t) override { return open(Json(Json::Array())); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& name) override {
    if (is_taken(levels_.back(), name)) fail(key_begin(), fmt::format("duplicate key '{}'", name));
    levels_.back().key = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    std::string_view message = error.what();
    message.remove_prefix(std::min(message.size(), message.find("] ") + 2));
    if (message.starts_with("parse error at")) message.remove_prefix(message.find(": ") + 2);
    fail(position == 0 ? 0 : std::min(position - 1, text_.size()), std::string(message));
  }

 private:
  // An array or object that is still open. Its value moves into the parent when it closes.
  struct Level {
    Json value;
    std::string key;                        // of the member being parsed
    std::unordered_set<std::string> names;  // of an object with many members
  };

  // Most objects are small, and a set for each would cost more than all else: only large ones get one.
  static bool is_taken(Level& level, const std::string& name) {
    constexpr size_t small = 16;
    const Json::Object& members = level.value.object();
    if (members.size() < small) {
      return std::any_of(members.begin(), members.end(), [&](const auto& m) { return m.first == name; });
    }
    if (level.names.empty()) {
      for (const auto& member : members) level.names.insert(member.first);
    }
    return !level.names.insert(name).second;
  }

  bool open(Json value) {
    if (levels_.size() == max_depth) {
      fail(offset() - 1, fmt::format("nested deeper than {} levels", max_depth));
    }
    levels_.push_back({std::move(value), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(levels_.back().value);
    levels_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
    } else if (Level& level = levels_.back(); level.value.is_array()) {
      level.value.array().push_back(std::move(value));
    } else {
      level.value.object().emplace_back(std::move(level.key), std::move(value));
    }
    return true;
  }

  size_t offset() const { return static_cast<size_t>(next_ - text_.data()); }

  // Offset of the opening quote of the key that the lexer has just read.
  size_t key_begin() const {
    size_t i = offset() - 1;
    while (i > 0) {
      --i;
      if (text_[i] != '"') continue;
      size_t slashes = 0;
      while (slashes < i && text_[i - 1 - slashes] == '\\') ++slashes;
      if (slashes % 2 == 0) return i;
    }
    return 0;
  }

  [[noreturn]] void fail(size_t at, const std::string& message) const {
    std::string_view before = text_.substr(0, at);
    size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    size_t column = at - (before.find_last_of('\n') + 1) + 1;
    raise(DS_ERROR_CONFIG, "{}: line {}, column {}: {}", source_, line, column, message);
  }

  std::string_view text_;
  std::string_view source_;
  const char* next_;
  Json root_;
  std::vector<Level> levels_;
};

}  // namespace

Json Json::parse(std::string_view text, std::string_view source) {
  Builder builder(text, source);
  nlohmann::json::sax_parse(builder.begin(), builder.end(), &builder, nlohmann::json::input_format_t::json,
                            /*strict=*/true, /*ignore_comments=*/true);
  return builder.take();
}

}  // namespace ds
