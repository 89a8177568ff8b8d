#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/config/config.h"
#include "core/config/values.h"

namespace ds {

using KeyWords = std::vector<std::string>;

// The kind of value that a key accepts, for the reference page and the JSON schema. A text key with
// words accepts only these.
enum class KeyKind {
  boolean,
  integer,
  number,
  text,
  texts,
  bytes,
  integers,
  numbers,
  pair,
  objects,
  named_numbers
};

// One key that libds acts on: how it is set and printed, and its text in the reference.
struct Key {
  using Setter = std::function<void(Config&, const Json& given)>;
  using Getter = std::function<Json(const Config&)>;

  // The dotted path from the top of the document.
  std::string path;
  Setter set;
  // Returns the value to print, or null if the key does not apply to the configuration.
  Getter get;
  KeyKind kind = KeyKind::text;
  // A paragraph of docs/reference/config.md in its markup.
  const char* doc = "";
  Limits limits = {};
  KeyWords words = {};
  // A second accepted name of the last component, or "".
  std::string other = {};
  // The value in a configuration that does not give the key, or null if it then has no value.
  Json fallback = {};
  // Returns the value, even if the key does not apply.
  Getter value = {};
  // The default that the reference page shows in place of `fallback`, unless it is "".
  std::string default_text = {};

  // Returns the path with the second name.
  std::string other_path() const { return path.substr(0, path.rfind('.') + 1) + other; }
  // Sets the second accepted name.
  Key& also(const char* name);
  // Sets the default that the reference page shows.
  Key& shown(const char* text);
  // Prints the key only in configurations for which `applies` returns true.
  Key& when(std::function<bool(const Config&)> applies);
  // Runs `part` after the key is set. It may refuse the value.
  Key& then(std::function<void(Config&)> part);
};

using KeyList = std::vector<Key>;

// Limits of counts. Together with the limits of check_sizes() on products, they ensure that no size
// overflows.
inline constexpr double kMost = 2147483647, kMostElements = 1e15;
inline constexpr Limits positive{.low = 1, .high = kMost};
inline constexpr Limits count{.low = 0, .high = kMost};
inline constexpr Limits positive_elements{.low = 1, .high = kMostElements};
inline constexpr Limits elements{.low = 0, .high = kMostElements};
inline constexpr Limits most{.high = kMost};

template <typename T>
inline constexpr KeyKind kKindOf = std::is_same_v<T, bool>                       ? KeyKind::boolean
                                   : std::is_integral_v<T>                       ? KeyKind::integer
                                   : std::is_convertible_v<double, T>            ? KeyKind::number
                                   : std::is_same_v<T, std::vector<std::string>> ? KeyKind::texts
                                                                                 : KeyKind::text;

// Returns the name in `supported` that equals the given text without regard to case. Refuses any
// other name; the message says that names in `foreign` are unsupported, and that other names are
// unknown.
std::string choose(const std::string& path, const Json& given, const KeyWords& supported,
                   const KeyWords& foreign = {});

// Appends a key. Its fallback is the value in an empty configuration.
Key& add_key(KeyList& keys, Key key);

// Maps a configuration, const or not, to its section of this type.
template <typename Section>
inline constexpr auto of_section = [](auto& c) -> auto& { return c.template get<Section>(); };

// Appends the keys of a section. `of` maps a configuration, const or not, to the section's struct;
// `prefix` is its path with a dot at the end. Each method appends one key for a field.
template <typename Of>
class KeyRows {
 public:
  KeyRows(KeyList& keys, std::string prefix, Of of)
      : keys_(keys), prefix_(std::move(prefix)), of_(of) {}

  // Keys appended after this call are printed only if `applies` returns true. It is called with the
  // configuration if it accepts one, otherwise with the section.
  template <typename Applies>
  void only(Applies applies) {
    applies_ = [=, of = of_](const Config& c) {
      if constexpr (std::is_invocable_v<Applies, const Config&>)
        return applies(c);
      else
        return std::invoke(applies, std::invoke(of, c));
    };
  }

  template <typename S, typename T>
  Key& add(const char* name, T S::*field, const char* doc, const Limits& limits = {}) {
    const auto read = [=](const std::string& path, const Json& given) {
      return read_value<T>(path, given, limits);
    };
    const bool bounded = !std::is_unsigned_v<T> || std::is_same_v<T, bool>;
    return row(name, field, read, write_value<T>, kKindOf<T>, doc, bounded ? limits : not_negative);
  }

  // Appends a key for a text that must not be empty, such as a path. An empty field has no value
  // and is printed as null.
  template <typename S>
  Key& nonempty(const char* name, std::string S::*field, const char* doc) {
    const auto read = [](const std::string& path, const Json& given) {
      return read_nonempty(path, given);
    };
    const auto write = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
    return row(name, field, read, write, KeyKind::text, doc);
  }

  // Appends a key for a number of bytes. A field below 0 has no value and is printed as null.
  template <typename S>
  Key& bytes(const char* name, int64_t S::*field, const char* doc,
             const Limits& limits = not_negative) {
    const auto read = [=](const std::string& path, const Json& given) {
      return parse_bytes(path, given, limits);
    };
    const auto write = [](int64_t bytes) { return bytes < 0 ? Json() : Json(bytes); };
    return row(name, field, read, write, KeyKind::bytes, doc, limits);
  }

  // Appends a key whose value is one of `words`. The words in `foreign` are refused as unsupported.
  template <typename S>
  Key& words(const char* name, std::string S::*field, const KeyWords& words, const char* doc,
             const KeyWords& foreign = {}) {
    const auto read = [=](const std::string& path, const Json& given) {
      return choose(path, given, words, foreign);
    };
    const auto write = [](const std::string& word) { return word.empty() ? Json() : Json(word); };
    return row(name, field, read, write, KeyKind::text, doc, {}, words);
  }

  // Appends a key whose value is one of `words`; the field gets the value paired with the chosen
  // word.
  template <typename S, typename T>
  Key& choice(const char* name, T S::*field, std::vector<std::pair<std::string, T>> words,
              const char* doc) {
    using Word = std::pair<std::string, T>;
    KeyWords names;
    for (const Word& word : words) names.push_back(word.first);
    const auto read = [=](const std::string& path, const Json& given) {
      return std::ranges::find(words, choose(path, given, names), &Word::first)->second;
    };
    const auto write = [=](T value) {
      const auto at = std::ranges::find(words, value, &Word::second);
      ensure(at != words.end(), "a key has a value without a word");
      return Json(at->first);
    };
    return row(name, field, read, write, KeyKind::text, doc, {}, names);
  }

  // Appends a key for which `read` converts a path and the given Json to the field's value, and
  // `write` converts that value to Json again.
  template <typename S, typename T, typename Read, typename Write>
  Key& row(const char* name, T S::*field, Read read, Write write, KeyKind kind, const char* doc,
           const Limits& limits = {}, const KeyWords& words = {}) {
    std::string path = prefix_ + name;
    auto set = [=, of = of_](Config& c, const Json& given) {
      std::invoke(of, c).*field = read(path, given);
    };
    auto get = [=, of = of_](const Config& c) { return write(std::invoke(of, c).*field); };
    return put({path, set, get, kind, doc, limits, words});
  }

  Key& put(Key key) {
    Key& added = add_key(keys_, std::move(key));
    return applies_ ? added.when(applies_) : added;
  }

 private:
  KeyList& keys_;
  std::string prefix_;
  Of of_;
  std::function<bool(const Config&)> applies_;
};

}  // namespace ds
