#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace ds {

// A JSON value together with the name that messages give it: "options.top_k", "folder/config.json:
// n_positions". Reading it as another kind, or with a closed range [low, high] that does not
// contain it, throws DS_ERROR_CONFIG with its name and both values.
class JsonReader {
 public:
  // The names of members are name + separator + key. The value is borrowed.
  JsonReader(std::string name, const Json& value, std::string_view separator = ".")
      : name_(std::move(name)), value_(&value), separator_(separator) {}

  const std::string& name() const { return name_; }
  const Json& json() const { return *value_; }

  bool flag() const;
  int64_t integer(int64_t low, int64_t high) const;
  double number() const;
  double number(double low, double high) const;
  const std::string& text() const;
  // Returns a text that must not be empty, such as a path.
  const std::string& nonempty() const;
  const std::string& word(std::span<const std::string> allowed) const;

  JsonReader at(std::string_view key) const;
  // Returns nothing if the member is absent or null.
  std::optional<JsonReader> find(std::string_view key) const;
  std::vector<std::pair<std::string, JsonReader>> members() const;
  // Returns the items of the array, which are named name[0], name[1] and so on.
  std::vector<JsonReader> items() const;

 private:
  void require_kind(bool good, const char* wanted) const;
  JsonReader member(std::string_view key, const Json& value) const;

  std::string name_;
  const Json* value_;
  std::string separator_;
};

}  // namespace ds
