#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"

namespace ds {

// One object of a tokenizer file whose keys are all accounted for: what is not asked for, is
// refused by done(). Errors name the file and the path of the key.
class Section {
 public:
  // json outlives the section; where: file and path, such as "m/tokenizer.json: model".
  Section(const Json& json, std::string where);

  const std::string& where() const { return where_; }
  const Json* find(std::string_view key);  // nullptr when absent or null
  const Json& at(std::string_view key);    // refuses absent and null
  std::string text(std::string_view key);
  std::string text(std::string_view key, std::string_view without);
  // A text of one character. An empty `without` refuses a file without the key.
  std::string character(std::string_view key, std::string_view without);
  bool flag(std::string_view key, bool without);
  int64_t integer(std::string_view key, int64_t low, int64_t high);
  const Json::Array& array(std::string_view key);
  Section inside(std::string_view key) { return {at(key), path(key)}; }
  std::string path(std::string_view key) const;  // where() and the key
  void skip(std::string_view key);               // a key that has no effect here
  void done() const;                             // refuses the keys that nobody asked for

  // The value is one that libds does not have.
  [[noreturn]] void unsupported(std::string_view key) const;

 private:
  const Json* json_;
  std::string where_;
  std::vector<std::string> known_;
};

}  // namespace ds
