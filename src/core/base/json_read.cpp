#include "core/base/json_read.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/base/contains.h"
#include "core/base/error.h"

namespace ds {
namespace {

// Returns the kind and, for a scalar, the value, as text of bounded length.
std::string shown(const Json& value) {
  if (value.is_null() || value.is_array() || value.is_object()) return value.kind();
  std::string text = value.dump();
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return fmt::format("{} {}", value.kind(), text);
}

// Returns whether Json::integer() accepts the value, so that reading cannot fail after the check of
// the kind.
bool is_integral(const Json& value) {
  if (!value.is_number() || value.is_integer()) return value.is_integer();
  double x = value.number();
  return x >= -0x1p63 && x < 0x1p63 && x == static_cast<double>(static_cast<int64_t>(x));
}

}  // namespace

void JsonReader::require_kind(bool good, const char* wanted) const {
  if (!good)
    raise(DS_ERROR_CONFIG, "{}: must be {}, got {}", KeyName(name_), wanted, shown(*value_));
}

bool JsonReader::flag() const {
  require_kind(value_->is_bool(), "true or false");
  return value_->boolean();
}

int64_t JsonReader::integer(int64_t low, int64_t high) const {
  require_kind(is_integral(*value_), "an integer");
  int64_t number = value_->integer();
  if (number >= low && number <= high) return number;
  raise(DS_ERROR_CONFIG, "{}: must be {} to {}, got {}", KeyName(name_), low, high, number);
}

double JsonReader::number() const {
  require_kind(value_->is_number(), "a number");
  return value_->number();
}

double JsonReader::number(double low, double high) const {
  double x = number();
  if (x >= low && x <= high) return x;
  raise(DS_ERROR_CONFIG, "{}: must be {} to {}, got {}", KeyName(name_), low, high, x);
}

const std::string& JsonReader::text() const {
  require_kind(value_->is_string(), "a string");
  return value_->string();
}

const std::string& JsonReader::nonempty() const {
  if (!text().empty()) return text();
  raise(DS_ERROR_CONFIG, "{}: must not be empty, got \"\"", KeyName(name_));
}

const std::string& JsonReader::word(std::span<const std::string> allowed) const {
  if (contains(allowed, text())) return text();
  raise(DS_ERROR_CONFIG, "{}: must be one of {}, got \"{}\"", KeyName(name_),
        fmt::join(allowed, ", "), text());
}

JsonReader JsonReader::member(std::string_view key, const Json& value) const {
  return {fmt::format("{}{}{}", name_, separator_, key), value};
}

JsonReader JsonReader::at(std::string_view key) const {
  require_kind(value_->is_object(), "an object");
  const Json* value = value_->find(key);
  if (!value) {
    raise(DS_ERROR_CONFIG, "{}: must be given, got none",
          KeyName(fmt::format("{}{}{}", name_, separator_, key)));
  }
  return member(key, *value);
}

std::optional<JsonReader> JsonReader::find(std::string_view key) const {
  require_kind(value_->is_object(), "an object");
  const Json* value = value_->find(key);
  return value && !value->is_null() ? std::optional(member(key, *value)) : std::nullopt;
}

std::vector<std::pair<std::string, JsonReader>> JsonReader::members() const {
  require_kind(value_->is_object(), "an object");
  std::vector<std::pair<std::string, JsonReader>> out;
  for (const auto& [key, value] : value_->object()) out.emplace_back(key, member(key, value));
  return out;
}

std::vector<JsonReader> JsonReader::items() const {
  require_kind(value_->is_array(), "an array");
  std::vector<JsonReader> out;
  for (const Json& item : value_->array())
    out.emplace_back(fmt::format("{}[{}]", name_, out.size()), item);
  return out;
}

}  // namespace ds
