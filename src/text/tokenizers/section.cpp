// Reads an object and remembers the keys that were read.
#include "text/tokenizers/section.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "core/base/contains.h"
#include "core/base/utf8.h"

namespace ds::text {
namespace {

// Returns a value in the form that messages show.
std::string brief(const Json& value) {
  std::string text = value.dump();
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

[[noreturn]] void wrong_kind(const std::string& path, const char* wanted, const Json& got) {
  raise(DS_ERROR_CORRUPT, "{} must be {}, got {} {}", path, wanted, got.kind(), brief(got));
}

}  // namespace

Section::Section(const Json& json, std::string where) : json_(&json), where_(std::move(where)) {
  if (!json.is_object()) wrong_kind(where_, "an object", json);
}

std::string Section::path(std::string_view key) const {
  return fmt::format("{}{}{}", where_, where_.ends_with(".json") ? ": " : ".", key);
}

// Null is treated as absent, as in Hugging Face's files.
const Json* Section::find(std::string_view key) {
  // Code that reads a key understands it, so done() accepts the key.
  known_.emplace_back(key);
  const Json* value = json_->find(key);
  return value && !value->is_null() ? value : nullptr;
}

const Json& Section::at(std::string_view key) {
  const Json* value = find(key);
  if (!value) raise(DS_ERROR_CORRUPT, "{} is missing", path(key));
  return *value;
}

std::string Section::text(std::string_view key) {
  const Json& value = at(key);
  if (!value.is_string()) wrong_kind(path(key), "a string", value);
  return value.string();
}

std::string Section::text(std::string_view key, std::string_view without) {
  return find(key) ? text(key) : std::string(without);
}

std::string Section::character(std::string_view key, std::string_view without) {
  std::string one = text(key, without);
  if (one.empty() || utf8_sequence(one) != one.size())
    wrong_kind(path(key), "one character", at(key));
  return one;
}

bool Section::flag(std::string_view key, bool without) {
  const Json* value = find(key);
  if (value && !value->is_bool()) wrong_kind(path(key), "a boolean", *value);
  return value ? value->boolean() : without;
}

int64_t Section::integer(std::string_view key, int64_t low, int64_t high) {
  const Json& value = at(key);
  if (!value.is_integer()) wrong_kind(path(key), "an integer", value);
  int64_t number = value.integer();
  if (number < low || number > high) {
    raise(DS_ERROR_CORRUPT, "{} must be from {} to {}, got {}", path(key), low, high, number);
  }
  return number;
}

const Json::Array& Section::array(std::string_view key) {
  const Json& value = at(key);
  if (!value.is_array()) wrong_kind(path(key), "an array", value);
  return value.array();
}

void Section::skip(std::string_view key) { known_.emplace_back(key); }

// A key that libds does not know may change the meaning of the file, so it is refused.
void Section::done() const {
  for (const auto& [key, value] : json_->object()) {
    if (!contains(known_, key)) unsupported(key);
  }
}

void Section::unsupported(std::string_view key) const {
  const Json* value = json_->find(key);
  raise(DS_ERROR_UNSUPPORTED, "{}: {} is not supported", path(key), value ? brief(*value) : "null");
}

}  // namespace ds::text
