#include "core/base/json.h"

#include <cmath>

#include "core/base/error.h"

namespace ds {

const char* Json::kind() const {
  static constexpr const char* names[] = {"null",   "boolean", "integer", "number",
                                          "string", "array",   "object",  "infinite number"};
  return is_nan() ? "NaN" : names[value_.index()];
}

bool Json::boolean() const {
  const bool* b = std::get_if<bool>(&value_);
  if (!b) raise(DS_ERROR_CONFIG, "must be a boolean, got {}", kind());
  return *b;
}

int64_t Json::integer() const {
  if (const auto* i = std::get_if<int64_t>(&value_)) return *i;
  const auto* d = std::get_if<double>(&value_);
  if (!d) raise(DS_ERROR_CONFIG, "must be an integer, got {}", kind());
  // 2^63 itself does not fit; the comparison also refuses NaN.
  if (!(*d >= -0x1p63 && *d < 0x1p63) || std::trunc(*d) != *d) {
    raise(DS_ERROR_CONFIG, "must be an integer of 64 bits, got {}", *d);
  }
  return static_cast<int64_t>(*d);
}

double Json::number() const {
  if (const auto* i = std::get_if<int64_t>(&value_)) return static_cast<double>(*i);
  const auto* d = std::get_if<double>(&value_);
  if (!d) raise(DS_ERROR_CONFIG, "must be a number, got {}", kind());
  return *d;
}

const std::string& Json::string() const {
  const auto* s = std::get_if<std::string>(&value_);
  if (!s) raise(DS_ERROR_CONFIG, "must be a string, got {}", kind());
  return *s;
}

const Json::Array& Json::array() const {
  const auto* a = std::get_if<Array>(&value_);
  if (!a) raise(DS_ERROR_CONFIG, "must be an array, got {}", kind());
  return *a;
}

const Json::Object& Json::object() const {
  const auto* o = std::get_if<Object>(&value_);
  if (!o) raise(DS_ERROR_CONFIG, "must be an object, got {}", kind());
  return *o;
}

Json::Array& Json::array() { return const_cast<Array&>(std::as_const(*this).array()); }
Json::Object& Json::object() { return const_cast<Object&>(std::as_const(*this).object()); }

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, value] : object()) {
    if (name == key) return &value;
  }
  return nullptr;
}

const Json& Json::at(std::string_view key) const {
  const Json* value = find(key);
  if (!value) raise(DS_ERROR_CONFIG, "key '{}' is missing", key);
  return *value;
}

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  for (auto& [name, old] : object()) {
    if (name == key) {
      old = std::move(value);
      return;
    }
  }
  object().emplace_back(std::string(key), std::move(value));
}

}  // namespace ds
