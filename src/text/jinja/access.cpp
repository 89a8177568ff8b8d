// Attributes, items and slices with the meaning that Jinja and Python give them. Reading a text by
// characters takes time proportional to its length, so each reading is charged to the budget.
#include "text/jinja/access.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/contains.h"
#include "text/jinja/fault.h"
#include "text/jinja/methods.h"
#include "text/jinja/python_text.h"

namespace ds::text::jinja {
namespace {

// Returns an attribute of `loop`. Attributes of Jinja's LoopContext that templates do not use are
// refused.
Value loop_attribute(const Loop& loop, std::string_view name, Budget& budget) {
  auto size = static_cast<int64_t>(loop.items->size());
  auto neighbour = [&](int64_t at) {
    return at < 0 || at >= size ? Value::undefined("there is no such item", budget)
                                : (*loop.items)[static_cast<size_t>(at)];
  };
  if (name == "index") return Value::of(loop.at + 1);
  if (name == "index0") return Value::of(loop.at);
  if (name == "revindex") return Value::of(size - loop.at);
  if (name == "revindex0") return Value::of(size - loop.at - 1);
  if (name == "first") return Value::of(loop.at == 0);
  if (name == "last") return Value::of(loop.at + 1 == size);
  if (name == "length") return Value::of(size);
  if (name == "depth") return Value::of(loop.depth);
  if (name == "depth0") return Value::of(loop.depth - 1);
  if (name == "previtem") return neighbour(loop.at - 1);
  if (name == "nextitem") return neighbour(loop.at + 1);
  fault(DS_ERROR_UNSUPPORTED, "loop.{} is unsupported", name);
}

// Returns an undefined value whose name, "KIND.MEMBER", tells messages which member is missing.
Value missing(const Value& object, std::string_view name, Budget& budget) {
  const char* const kind = object.is_dict() || object.is_space() ? "dict" : object.kind();
  return Value::undefined(fmt::format("{}.{}", kind, name), budget);
}

// Returns the items of a list, tuple or range, or null for any other value.
const Values* numbered(const Value& object) {
  if (object.is_list()) return &object.items().items;
  return object.is_series(Series::Kind::range) ? &object.series().items : nullptr;
}

// Returns whether the name is an attribute of the corresponding Python type that libds does not
// support.
bool is_of_python(const Value& object, std::string_view name) {
  static constexpr std::string_view kOfMacro[] = {"name",          "arguments", "catch_kwargs",
                                                  "catch_varargs", "caller",    "explicit_caller"},
                                    kOfSeries[] = {"start", "stop",    "step",       "count",
                                                   "index", "mapping", "isdisjoint", "send",
                                                   "throw", "close"};
  const auto among = [&](std::span<const std::string_view> names) {
    return ds::contains(names, name);
  };
  return (object.is_macro() && among(kOfMacro)) || (object.is_series() && among(kOfSeries));
}

int64_t size_of(const Value& object) {
  if (object.is_text()) return length(object.text());
  if (const Values* items = numbered(object)) return static_cast<int64_t>(items->size());
  fault(DS_ERROR_CONFIG, "a {} cannot be sliced", object.kind());
}

int64_t bound(const Value& given, int64_t otherwise) {
  if (given.is_undefined() || given.is_none()) return otherwise;
  if (!given.is_int() && !given.is_bool()) {
    fault(DS_ERROR_CONFIG, "a slice needs integers, got a {}", given.kind());
  }
  return given.integer();
}

}  // namespace

// Names that begin with an underscore are refused, as in Jinja's sandbox.
Value attribute(const Value& object, std::string_view name, Budget& budget) {
  require_defined(object);
  if (object.is_loop()) return loop_attribute(object.loop(), name, budget);
  if (name.starts_with("_") || is_of_python(object, name))
    fault(DS_ERROR_UNSUPPORTED, "attribute '{}' is unsupported", name);
  // A method that is not called is a value that is true and has no other use.
  if (is_method(object, name)) return Value::of(Function{"method"});
  if (!object.is_dict() && !object.is_space()) return missing(object, name, budget);
  budget.work(object.members().items.size() / 8);
  const Value* found = object.members().find(name);
  return found ? *found : missing(object, name, budget);
}

// Negative indices count from the end. If the object is not a dict, a text as index names an
// attribute.
Value item(const Value& object, const Value& index, Budget& budget) {
  require_defined(object);
  const Values* const items = numbered(object);
  if (items && (index.is_int() || index.is_bool())) {
    auto size = static_cast<int64_t>(items->size());
    int64_t at = index.integer() < 0 ? index.integer() + size : index.integer();
    if (at < 0 || at >= size)
      return Value::undefined(fmt::format("list.{}", index.integer()), budget);
    return (*items)[static_cast<size_t>(at)];
  }
  if (object.is_text() && (index.is_int() || index.is_bool())) {
    const std::string& text = object.text();
    budget.work(text.size() / 16 + 1);
    int64_t size = length(text),
            at = index.integer() < 0 ? index.integer() + size : index.integer();
    if (at < 0 || at >= size)
      return Value::undefined(fmt::format("str.{}", index.integer()), budget);
    size_t begin = offset_of(text, at);
    std::string_view rest = std::string_view(text).substr(begin);
    return Value::of(std::string(rest.substr(0, offset_of(rest, 1))), budget);
  }
  if (!index.is_text()) return missing(object, index.str(budget), budget);
  if (object.is_dict()) {
    budget.work(object.members().items.size() / 8);
    const Value* found = object.members().find(index.text());
    return found ? *found : missing(object, index.text(), budget);
  }
  return attribute(object, index.text(), budget);
}

Value slice(const Value& object, const Value& begin, const Value& end, const Value& step,
            Budget& budget) {
  require_defined(object);
  int64_t size = size_of(object), by = bound(step, 1);
  if (by == 0) fault(DS_ERROR_CONFIG, "the step of a slice is 0");
  // As in Python, bounds are clamped to [0, size], or to [-1, size - 1] if the step is negative.
  auto place = [&](const Value& given, int64_t otherwise) {
    int64_t at = bound(given, otherwise);
    if (given.is_undefined() || given.is_none()) return at;
    if (at < 0) at = at < -size ? int64_t{-1} - (by > 0 ? -1 : 0) : at + size;
    return by > 0 ? std::clamp(at, int64_t{0}, size) : std::clamp(at, int64_t{-1}, size - 1);
  };
  int64_t first = place(begin, by > 0 ? 0 : size - 1), last = place(end, by > 0 ? size : -1);
  std::vector<int64_t> places;
  for (int64_t at = first; by > 0 ? at < last : at > last;) {
    budget.work(1);
    places.push_back(at);
    // A step that is longer than the sequence leads out of it, and adding it could overflow.
    if (by > size || by < -size) break;
    at += by;
  }
  if (const Values* items = numbered(object)) {
    Values out;
    for (int64_t at : places) out.push_back((*items)[static_cast<size_t>(at)]);
    budget.memory(out.size() * sizeof(Value));
    if (object.is_series()) return Value::series(Series::Kind::range, std::move(out));
    return Value::list(std::move(out), object.items().tuple);
  }
  std::string_view text = object.text();
  budget.work(text.size() / 16);
  budget.memory(text.size());
  if (by == 1) {
    if (places.empty()) return Value::paid({});
    size_t from = offset_of(text, first);
    return Value::paid(std::string(text.substr(from, offset_of(text.substr(from), last - first))));
  }
  std::vector<std::string_view> characters;
  budget.memory(text.size() * sizeof(std::string_view));
  for (std::string_view rest = text; !rest.empty();) {
    characters.push_back(rest.substr(0, offset_of(rest, 1)));
    rest.remove_prefix(characters.back().size());
  }
  std::string out;
  for (int64_t at : places) out += characters[static_cast<size_t>(at)];
  return Value::paid(std::move(out));
}

}  // namespace ds::text::jinja
