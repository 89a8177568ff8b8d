// The global functions of a template, and the methods of `loop`.
#include "text/jinja/functions.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "text/jinja/fault.h"
#include "text/jinja/python_text.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {
namespace {

// Implements range(). A single argument is the end. All items are created and paid for at once, so
// a huge range exceeds the budget instead of the memory.
Value range(Arguments a, Budget& budget) {
  a.expect("range", {"start", "stop", "step"});
  bool one = !a.has(1);
  int64_t begin = one ? 0 : a.integer(0, 0),
          end = one ? a.at(0).is_int() ? a.integer(0, 0) : -1 : a.integer(1, 0);
  if (one && !a.at(0).is_int())
    fault(DS_ERROR_CONFIG, "range needs an int, got a {}", a.at(0).kind());
  int64_t step = a.integer(2, 1);
  if (step == 0) fault(DS_ERROR_CONFIG, "the step of a range is 0");
  Values out;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    budget.memory(sizeof(Value));
    out.push_back(Value::of(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::series(Series::Kind::range, std::move(out));
}

// Returns the members of a mapping and the named arguments. As in a Python dict, later values
// replace earlier ones of the same name but keep their places.
std::vector<std::pair<std::string, Value>> named_pairs(const Arguments& a,
                                                       std::string_view function, Budget& budget) {
  std::vector<std::pair<std::string, Value>> out;
  if (a.placed().size() > 1)
    fault(DS_ERROR_CONFIG, "{} takes one mapping, got {}", function, a.placed().size());
  if (!a.placed().empty()) {
    if (!a.placed()[0].is_dict())
      fault(DS_ERROR_UNSUPPORTED, "{} of a {} is unsupported", function, a.placed()[0].kind());
    for (const auto& one : a.placed()[0].members().items) {
      budget.memory(sizeof one + one.first.size());
      out.push_back(one);
    }
  }
  for (const auto& [name, value] : a.named()) {
    budget.work(out.size() / 8);
    auto known =
        std::ranges::find_if(out, [&, &key = name](const auto& o) { return o.first == key; });
    if (known != out.end()) {
      known->second = value;
    } else {
      budget.memory(sizeof out[0] + name.size());
      out.emplace_back(name, value);
    }
  }
  return out;
}

// Formats the current local time with the names of the C locale, whatever locale the process has.
Value date_text(Arguments a, Budget& budget) {
  a.expect("strftime_now", {"format"});
  const std::string& format = a.text(0);
  std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  std::array<char, 4096> out;
  if (format.size() > 256)
    fault(DS_ERROR_UNSUPPORTED, "strftime_now of {} characters is unsupported", format.size());
  locale_t plain = newlocale(LC_ALL_MASK, "C", nullptr);
  size_t size = strftime_l(out.data(), out.size(), format.c_str(), &local, plain);
  freelocale(plain);
  return Value::of(std::string(out.data(), size), budget);
}

constexpr std::string_view kFunctions[] = {"range", "dict", "namespace", "raise_exception",
                                           "strftime_now"};

}  // namespace

// Returns the static name, which a Function can hold as a view.
std::string_view function_name(std::string_view name) {
  for (std::string_view known : kFunctions) {
    if (known == name) return known;
  }
  // Functions of Jinja that libds lacks are refused by name instead of being undefined.
  if (name == "lipsum" || name == "cycler" || name == "joiner") {
    fault(DS_ERROR_UNSUPPORTED, "function '{}' is unsupported", name);
  }
  return "";
}

// raise_exception ends the rendering with a message of the template.
Value call_function(std::string_view name, Arguments a, Budget& budget) {
  budget.memory((a.placed().size() + a.named().size()) * sizeof(Value));
  if (name == "range") return range(std::move(a), budget);
  if (name == "dict") return Value::dict(named_pairs(a, name, budget));
  if (name == "strftime_now") return date_text(std::move(a), budget);
  if (name == "namespace") {
    auto items = named_pairs(a, name, budget);
    for (const auto& [key, value] : items) {
      if (key.starts_with("_")) fault(DS_ERROR_CONFIG, "attribute '{}' cannot be set", key);
    }
    return Value::space(std::move(items));
  }
  if (name != "raise_exception")
    fault(DS_ERROR_UNSUPPORTED, "calling a '{}' that was stored as a value is unsupported", name);
  a.expect(std::string(name), {"message"});
  fault(DS_ERROR_CONFIG, "the template refuses: {}", a.at(0).str(budget));
}

Value loop_method(const Loop& loop, std::string_view name, Arguments a) {
  if (name != "cycle") fault(DS_ERROR_UNSUPPORTED, "loop.{}() is unsupported", name);
  if (a.placed().empty()) fault(DS_ERROR_CONFIG, "loop.cycle needs values");
  return a.placed()[static_cast<size_t>(loop.at) % a.placed().size()];
}

}  // namespace ds::text::jinja
