// Methods of str, list and dict. Each is a row of a table: its parameters and a function.
#include "text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/contains.h"
#include "core/base/utf8.h"
#include "text/jinja/arguments.h"
#include "text/jinja/fault.h"
#include "text/jinja/python_text.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {
namespace {

struct Method {
  std::string_view name;
  std::vector<std::string_view> parameters;
  Value (*run)(const Value& object, const Arguments& a, Budget& budget);
};

// Returns a list of texts. Pays for the strings and for the values that hold them.
Value text_list(std::vector<std::string> parts, Budget& budget) {
  Values out;
  budget.memory(parts.size() * (sizeof(Value) + sizeof(std::string)));
  budget.work(parts.size());
  for (std::string& part : parts) out.push_back(Value::paid(std::move(part)));
  return Value::list(std::move(out));
}

Value stripped(const Value& object, const Arguments& a, Budget& budget, Side side) {
  bool given = a.has(0) && !a.at(0).is_none();
  budget.work(given ? a.text(0).size() : 0);
  return Value::of(std::string(strip(object.text(), side, given ? &a.text(0) : nullptr)), budget);
}

// The memory of all parts is paid for before they are created.
Value split(const Value& object, const Arguments& a, Budget& budget, bool right) {
  const std::string& text = object.text();
  budget.work(text.size() / 8);
  // All parts together are at most as long as the text.
  budget.memory(text.size());
  int64_t most = a.integer(1, -1);
  if (!a.has(0) || a.at(0).is_none()) {
    if (right && most >= 0)
      fault(DS_ERROR_UNSUPPORTED, "rsplit by spaces with maxsplit is unsupported");
    // Each part, even one of a single byte, is a std::string.
    budget.memory(text.size() * 16);
    return text_list(split_spaces(text, most), budget);
  }
  const std::string& separator = a.text(0);
  budget.memory(separator.empty() ? 0 : text.size() / separator.size() * sizeof(std::string));
  return text_list(
      right ? split_text_right(text, separator, most) : split_text(text, separator, most), budget);
}

// Returns whether the text begins or ends with the argument or, if that is a tuple, with one of its
// items.
bool has_end(const Value& object, const Arguments& a, Budget& budget, bool begin) {
  auto one = [&](const Value& part) {
    if (!part.is_text())
      fault(DS_ERROR_CONFIG, "startswith and endswith need a str, got a {}", part.kind());
    budget.work(part.text().size() / 64 + 1);
    return begin ? object.text().starts_with(part.text()) : object.text().ends_with(part.text());
  };
  if (!a.at(0).is_list()) return one(a.at(0));
  const Values& parts = a.at(0).items().items;
  return std::ranges::any_of(parts, one);
}

// Returns where the argument is found, or -1. As in Python, the index counts characters.
Value place_found(const Value& object, const Arguments& a, bool right) {
  const std::string& text = object.text();
  size_t at = right ? std::string::npos : find_text(text, a.text(0));
  if (right) {
    // Searching backwards takes time in proportion to the product of both lengths, so the part must
    // be short.
    if (a.text(0).size() > 64)
      fault(DS_ERROR_UNSUPPORTED, "rfind of more than 64 bytes is unsupported");
    at = text.rfind(a.text(0));
  }
  return Value::of(at == text.npos ? int64_t{-1} : length(std::string_view(text).substr(0, at)));
}

int64_t count_of(std::string_view text, std::string_view part) {
  // Python finds an empty text before each character and at the end.
  if (part.empty()) return length(text) + 1;
  int64_t count = 0;
  for (size_t at = find_text(text, part); at != text.npos;
       at = find_text(text, part, at + part.size()))
    ++count;
  return count;
}

// Counts first, so that the size of the result is paid for before it is created.
Value replaced(const Value& object, const Arguments& a, Budget& budget) {
  int64_t most = a.integer(2, -1), times = count_of(object.text(), a.text(0));
  if (most >= 0) times = std::min(times, most);
  budget.memory(object.text().size() + static_cast<size_t>(times) * a.text(1).size());
  return Value::paid(replace_text(object.text(), a.text(0), a.text(1), most));
}

// Unlike the filter, the method accepts texts only.
Value joined(const Value& object, const Arguments& a, Budget& budget) {
  std::string out;
  bool first = true;
  for (const Value& part : iterate(a.at(0), budget)) {
    if (!part.is_text()) fault(DS_ERROR_CONFIG, "join needs texts, got a {}", part.kind());
    budget.memory(part.text().size() + object.text().size());
    if (!first) out += object.text();
    first = false;
    out += part.text();
  }
  return Value::paid(std::move(out));
}

// Returns whether the text is not empty and all its characters belong to a class. Characters beyond
// ASCII are refused.
Value all_of(const Value& object, bool (*good)(char)) {
  for (char c : object.text()) {
    if (static_cast<uint8_t>(c) >= 0x80) {
      fault(DS_ERROR_UNSUPPORTED, "the class of characters beyond ASCII is unsupported");
    }
    if (!good(c)) return Value::of(false);
  }
  return Value::of(!object.text().empty());
}

bool digit(char c) { return c >= '0' && c <= '9'; }
bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool alphanumeric(char c) { return digit(c) || letter(c); }

Value all_spaces(const Value& object) {
  return Value::of(!object.text().empty() && strip(object.text(), Side::left).empty());
}

const std::array<Method, 25>& text_methods() {
  using V = const Value&;
  using A = const Arguments&;
  using B = Budget&;
  static const std::array<Method, 25> all{{
      {"strip", {"chars"}, [](V o, A a, B b) { return stripped(o, a, b, Side::both); }},
      {"lstrip", {"chars"}, [](V o, A a, B b) { return stripped(o, a, b, Side::left); }},
      {"rstrip", {"chars"}, [](V o, A a, B b) { return stripped(o, a, b, Side::right); }},
      {"split", {"sep", "maxsplit"}, [](V o, A a, B b) { return split(o, a, b, false); }},
      {"rsplit", {"sep", "maxsplit"}, [](V o, A a, B b) { return split(o, a, b, true); }},
      {"splitlines",
       {},
       [](V o, A, B b) {
         // In the worst case each byte is a line end, and each line a std::string.
         b.memory(o.text().size() * 32);
         return text_list(split_lines(o.text()), b);
       }},
      {"startswith", {"prefix"}, [](V o, A a, B b) { return Value::of(has_end(o, a, b, true)); }},
      {"endswith", {"suffix"}, [](V o, A a, B b) { return Value::of(has_end(o, a, b, false)); }},
      {"upper", {}, [](V o, A, B b) { return Value::of(upper(o.text()), b); }},
      {"lower", {}, [](V o, A, B b) { return Value::of(lower(o.text()), b); }},
      {"capitalize", {}, [](V o, A, B b) { return Value::of(capitalize(o.text()), b); }},
      {"title", {}, [](V o, A, B b) { return Value::of(title(o.text()), b); }},
      {"replace", {"old", "new", "count"}, replaced},
      {"join", {"iterable"}, joined},
      {"find", {"sub"}, [](V o, A a, B) { return place_found(o, a, false); }},
      {"rfind", {"sub"}, [](V o, A a, B) { return place_found(o, a, true); }},
      {"index",
       {"sub"},
       [](V o, A a, B) {
         Value at = place_found(o, a, false);
         if (at.integer() < 0) fault(DS_ERROR_CONFIG, "substring not found");
         return at;
       }},
      {"count", {"sub"}, [](V o, A a, B) { return Value::of(count_of(o.text(), a.text(0))); }},
      {"isdigit", {}, [](V o, A, B) { return all_of(o, digit); }},
      {"isnumeric", {}, [](V o, A, B) { return all_of(o, digit); }},
      {"isalpha", {}, [](V o, A, B) { return all_of(o, letter); }},
      {"isalnum", {}, [](V o, A, B) { return all_of(o, alphanumeric); }},
      {"isspace", {}, [](V o, A, B) { return all_spaces(o); }},
      {"removeprefix",
       {"prefix"},
       [](V o, A a, B b) {
         bool there = o.text().starts_with(a.text(0));
         return Value::of(o.text().substr(there ? a.text(0).size() : 0), b);
       }},
      {"removesuffix",
       {"suffix"},
       [](V o, A a, B b) {
         bool there = !a.text(0).empty() && o.text().ends_with(a.text(0));
         return Value::of(o.text().substr(0, o.text().size() - (there ? a.text(0).size() : 0)), b);
       }},
  }};
  return all;
}

// Returns a view of the pairs. Each pair is a tuple, so a loop can assign its parts to two names.
Value pairs(const Value& object, Budget& budget) {
  Values out;
  budget.memory(object.members().items.size() * 6 * sizeof(Value));
  budget.work(object.members().items.size());
  for (const auto& [key, value] : object.members().items)
    out.push_back(Value::list({Value::of(key, budget), value}, true));
  return Value::series(Series::Kind::dict_items, std::move(out));
}

// Keys are texts, so another value finds nothing.
Value got(const Value& object, const Arguments& a, Budget& budget) {
  budget.work(object.members().items.size() / 8);
  const Value* found = a.at(0).is_text() ? object.members().find(a.at(0).text()) : nullptr;
  return found ? *found : a.value(1, Value::none());
}

const std::array<Method, 4>& dict_methods() {
  static const std::array<Method, 4> all{{
      {"items", {}, [](const Value& o, const Arguments&, Budget& b) { return pairs(o, b); }},
      {"keys",
       {},
       [](const Value& o, const Arguments&, Budget& b) {
         return Value::series(Series::Kind::dict_keys, iterate(o, b));
       }},
      {"values",
       {},
       [](const Value& o, const Arguments&, Budget& b) {
         Values out;
         b.memory(o.members().items.size() * sizeof(Value));
         for (const auto& [key, value] : o.members().items) out.push_back(value);
         return Value::series(Series::Kind::dict_values, std::move(out));
       }},
      {"get", {"key", "default"}, got},
  }};
  return all;
}

const std::array<Method, 2>& list_methods() {
  static const std::array<Method, 2> all{{
      {"index",
       {"value"},
       [](const Value& o, const Arguments& a, Budget& b) {
         const Values& items = o.items().items;
         for (size_t i = 0; i < items.size(); ++i) {
           if (equal(items[i], a.at(0), b)) return Value::of(static_cast<int64_t>(i));
         }
         fault(DS_ERROR_CONFIG, "the value is not in the list");
       }},
      {"count",
       {"value"},
       [](const Value& o, const Arguments& a, Budget& b) {
         int64_t count = 0;
         for (const Value& one : o.items().items) count += equal(one, a.at(0), b) ? 1 : 0;
         return Value::of(count);
       }},
  }};
  return all;
}

// Methods of Python's types that the tables lack. They are refused by name.
constexpr std::string_view kMoreText[] = {
    "casefold",   "center",    "encode",       "expandtabs", "format",      "format_map",
    "isascii",    "isdecimal", "isidentifier", "islower",    "isprintable", "istitle",
    "isupper",    "ljust",     "maketrans",    "partition",  "rindex",      "rjust",
    "rpartition", "swapcase",  "translate",    "zfill"};
constexpr std::string_view kMoreList[] = {"append", "clear",  "copy",    "extend", "insert",
                                          "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kMoreDict[] = {"clear",   "copy",       "fromkeys", "pop",
                                          "popitem", "setdefault", "update"};

template <typename Table>
const Method* method_in(const Table& table, std::string_view name) {
  for (const Method& one : table) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

// Types other than texts, dictionaries and lists have no methods here.
const Method* method(const Value& object, std::string_view name) {
  if (object.is_text()) return method_in(text_methods(), name);
  if (object.is_dict()) return method_in(dict_methods(), name);
  if (object.is_list()) return method_in(list_methods(), name);
  return nullptr;
}

template <size_t n>
bool among(const std::string_view (&names)[n], std::string_view name) {
  return ds::contains(names, name);
}

}  // namespace

// As in Python, a method hides a key of the same name, even if libds refuses to call it.
bool is_method(const Value& object, std::string_view name) {
  return method(object, name) != nullptr || (object.is_text() && among(kMoreText, name)) ||
         (object.is_list() && among(kMoreList, name)) ||
         (object.is_dict() && among(kMoreDict, name));
}

// All methods in kMoreList and kMoreDict change their object, except copy and fromkeys.
Value call_method(const Value& object, std::string_view name, Arguments arguments, Budget& budget) {
  const Method* found = method(object, name);
  if (!found && (object.is_list() || object.is_dict()) && name != "copy" && name != "fromkeys") {
    fault(DS_ERROR_UNSUPPORTED, "'{}' changes a {}, which the sandbox of Transformers refuses",
          name, object.kind());
  }
  if (!found)
    fault(DS_ERROR_UNSUPPORTED, "method '{}' of a {} is unsupported", name, object.kind());
  if (object.is_text()) budget.work(object.text().size() / 32);
  arguments.expect(std::string(name), found->parameters);
  return found->run(object, arguments, budget);
}

}  // namespace ds::text::jinja
