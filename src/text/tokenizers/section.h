#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"

namespace ds::text {

// One object of a tokenizer file. Every key must be accounted for: done() refuses keys that were
// not read. Errors name the file and the path of the key.
class Section {
 public:
  // `json` must outlive the section. `where` is file and path, such as "m/tokenizer.json: model".
  Section(const Json& json, std::string where);

  const std::string& where() const { return where_; }
  // Returns nullptr if the key is absent or null.
  const Json* find(std::string_view key);
  // Returns the value of a key, and throws if the key is absent or null.
  const Json& at(std::string_view key);
  // These functions return a value of one kind. A value of another kind is an error that names key,
  // kind and value. An absent key has the value `without`; it is an error if the function has no
  // such parameter.
  std::string text(std::string_view key);
  std::string text(std::string_view key, std::string_view without);
  // Returns a text of one character. An empty `without` refuses a file without the key.
  std::string character(std::string_view key, std::string_view without);
  bool flag(std::string_view key, bool without);
  int64_t integer(std::string_view key, int64_t low, int64_t high);
  const Json::Array& array(std::string_view key);
  Section inside(std::string_view key) { return {at(key), path(key)}; }
  // Returns where() with the key appended, for messages.
  std::string path(std::string_view key) const;
  // Accepts a key that has no effect here.
  void skip(std::string_view key);
  // Refuses the keys that were not read.
  void done() const;

  // Refuses a value that libds does not support.
  [[noreturn]] void unsupported(std::string_view key) const;

 private:
  const Json* json_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace ds::text
