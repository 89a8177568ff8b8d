// Filters over the items of a sequence.
#include "text/jinja/item_filters.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "text/jinja/access.h"
#include "text/jinja/fault.h"
#include "text/jinja/methods.h"
#include "text/jinja/python_text.h"
#include "text/jinja/tests.h"
#include "text/jinja/value.h"

namespace ds::text::jinja {
namespace {

using V = const Value&;
using B = Budget&;

// Returns the named argument, or undefined if it is not given.
Value named(const Arguments& a, std::string_view name) {
  for (const auto& [key, value] : a.named()) {
    if (key == name) return value;
  }
  return {};
}

// Returns a generator of the items that make(item, out) appends for each item of a value. As in
// Python, a fault is reported only to a reader that reaches it. A value that is false, even one
// that cannot be iterated, has no items unless `all` is set.
template <typename Make>
Value lazily(V value, bool all, B budget, const Make& make) {
  if (!all && !value.truth()) return Value::generator({});
  Values out;
  std::optional<Fault> end;
  try {
    Given given = give(value, budget);
    for (const Value& one : given.items) make(one, out);
    end = std::move(given.end);
  } catch (const Fault& fault) {
    end = fault;
  }
  return Value::generator(std::move(out), std::move(end));
}

// map(attribute=...) reads an attribute of each item; otherwise the first argument names a filter.
Value map(V value, const Arguments& a, B budget, ApplyFilter apply) {
  Value path = named(a, "attribute"), otherwise = named(a, "default");
  return lazily(value, false, budget, [&](V one, Values& out) {
    if (path.is_undefined()) {
      if (a.placed().empty() || !a.placed()[0].is_text())
        fault(DS_ERROR_CONFIG, "map needs the name of a filter, or attribute=");
      out.push_back(apply(a.placed()[0].text(), one, a.without_first(), budget));
      return;
    }
    Value found = path_of(one, path, budget);
    out.push_back(found.is_undefined() && !otherwise.is_undefined() ? otherwise : found);
  });
}

// Implements select, reject, selectattr and rejectattr: returns the items for which a test of the
// item, or of the attribute that the first argument names, returns `wanted`. Without a test, the
// truth of the item or attribute decides.
Value selected(V value, const Arguments& a, B budget, bool wanted, bool by_attribute) {
  const bool has_path = by_attribute && !a.placed().empty();
  const Value path = has_path ? a.placed()[0] : Value();
  const Arguments rest = has_path ? a.without_first() : a;
  return lazily(value, false, budget, [&](V one, Values& out) {
    if (by_attribute && !has_path)
      fault(DS_ERROR_CONFIG, "selectattr and rejectattr need an attribute");
    Value looked = by_attribute ? path_of(one, path, budget) : one;
    bool good = rest.placed().empty() ? looked.truth()
                                      : apply_test(rest.placed()[0].str(budget), looked,
                                                   rest.without_first(), budget);
    if (good == wanted) out.push_back(one);
  });
}

// Returns the key by which an item is compared: the item, or its attribute `path`. Texts are in
// lower case unless `case_sensitive`.
Value key_of(V one, V path, bool case_sensitive, B budget) {
  Value key = path.is_undefined() || path.is_none() ? one : path_of(one, path, budget);
  return key.is_text() && !case_sensitive ? Value::of(lower(key.text()), budget) : key;
}

std::vector<std::pair<Value, Value>> keyed(V value, V path, bool case_sensitive, B budget) {
  std::vector<std::pair<Value, Value>> out;
  for (const Value& one : iterate(value, budget)) {
    out.emplace_back(key_of(one, path, case_sensitive, budget), one);
  }
  budget.memory(out.size() * 2 * sizeof(Value));
  return out;
}

Value sorted(V value, Arguments a, B budget) {
  a.expect("sort", {"reverse", "case_sensitive", "attribute"});
  auto all = keyed(value, a.value(2, Value::none()), a.flag(1, false), budget);
  bool reverse = a.flag(0, false);
  std::ranges::stable_sort(all, [&](const auto& x, const auto& y) {
    // Equal keys are settled first, since less() refuses two undefined ones.
    if (equal(x.first, y.first, budget)) return false;
    return reverse ? less(y.first, x.first, budget) : less(x.first, y.first, budget);
  });
  Values out;
  for (auto& [key, one] : all) out.push_back(std::move(one));
  return Value::list(std::move(out));
}

// Compares each item with every key so far; each comparison is paid for.
Value unique(V value, Arguments a, B budget) {
  a.expect("unique", {"case_sensitive", "attribute"});
  const Value path = a.value(1, Value::none());
  const bool case_sensitive = a.flag(0, false);
  Values keys;
  return lazily(value, true, budget, [&](V one, Values& out) {
    budget.memory(sizeof(Value));
    const Value key = key_of(one, path, case_sensitive, budget);
    if (!hashable(key)) fault(DS_ERROR_CONFIG, "unique of a {} is not possible", key.kind());
    if (std::ranges::any_of(keys, [&](V other) { return equal(key, other, budget); })) return;
    keys.push_back(key);
    out.push_back(one);
  });
}

// Returns the item with the smallest or largest key; among equal keys, the first one.
Value extreme(V value, Arguments a, B budget, bool largest) {
  a.expect(largest ? "max" : "min", {"case_sensitive", "attribute"});
  auto all = keyed(value, a.value(1, Value::none()), a.flag(0, false), budget);
  if (all.empty()) return Value::undefined("an item of an empty sequence", budget);
  size_t best = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    bool better = largest ? less(all[best].first, all[i].first, budget)
                          : less(all[i].first, all[best].first, budget);
    if (better) best = i;
  }
  return all[best].second;
}

// Accepts numbers only; with a real among them, the sum is real.
Value sum(V value, Arguments a, B budget) {
  a.expect("sum", {"attribute", "start"});
  Value total = a.value(1, Value::of(int64_t{0})), path = a.value(0, Value::none());
  for (const Value& item : iterate(value, budget)) {
    Value one = path.is_none() ? item : path_of(item, path, budget);
    if (!one.is_number() || !total.is_number())
      fault(DS_ERROR_CONFIG, "sum needs numbers, got a {}", one.kind());
    int64_t whole = 0;
    bool real = one.is_real() || total.is_real();
    if (!real && __builtin_add_overflow(total.integer(), one.integer(), &whole)) {
      fault(DS_ERROR_UNSUPPORTED, "a sum has more than 64 bits");
    }
    total = real ? Value::of(total.number() + one.number()) : Value::of(whole);
  }
  return total;
}

// Sorts the pairs of a dictionary by key or by value.
Value dict_sorted(V value, Arguments a, B budget) {
  a.expect("dictsort", {"case_sensitive", "by", "reverse"});
  if (!value.is_dict())
    fault(DS_ERROR_CONFIG, "dictsort: a mapping is needed, got a {}", value.kind());
  Values options{Value::of(a.flag(2, false)), Value::of(a.flag(0, false)),
                 Value::of(int64_t{a.text(1, "key") == "value" ? 1 : 0})};
  return sorted(call_method(value, "items", {}, budget), {std::move(options), {}}, budget);
}

struct ItemFilter {
  std::string_view name;
  Value (*run)(V value, const Arguments& a, B budget, ApplyFilter apply);
};

constexpr ItemFilter kFilters[] = {
    {"map", map},
    {"select",
     [](V v, const Arguments& a, B b, ApplyFilter) { return selected(v, a, b, true, false); }},
    {"reject",
     [](V v, const Arguments& a, B b, ApplyFilter) { return selected(v, a, b, false, false); }},
    {"selectattr",
     [](V v, const Arguments& a, B b, ApplyFilter) { return selected(v, a, b, true, true); }},
    {"rejectattr",
     [](V v, const Arguments& a, B b, ApplyFilter) { return selected(v, a, b, false, true); }},
    {"sort", [](V v, const Arguments& a, B b, ApplyFilter) { return sorted(v, a, b); }},
    {"unique", [](V v, const Arguments& a, B b, ApplyFilter) { return unique(v, a, b); }},
    {"min", [](V v, const Arguments& a, B b, ApplyFilter) { return extreme(v, a, b, false); }},
    {"max", [](V v, const Arguments& a, B b, ApplyFilter) { return extreme(v, a, b, true); }},
    {"sum", [](V v, const Arguments& a, B b, ApplyFilter) { return sum(v, a, b); }},
    {"dictsort", [](V v, const Arguments& a, B b, ApplyFilter) { return dict_sorted(v, a, b); }},
};

const ItemFilter* item_filter_named(std::string_view name) {
  for (const ItemFilter& one : kFilters) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

}  // namespace

bool is_item_filter(std::string_view name) { return item_filter_named(name) != nullptr; }

Value apply_item_filter(std::string_view name, const Value& value, const Arguments& arguments,
                        Budget& budget, ApplyFilter apply) {
  return item_filter_named(name)->run(value, arguments, budget, apply);
}

// Parts of a path that are numbers are indices.
Value path_of(const Value& one, const Value& path, Budget& budget) {
  budget.work(1);
  if (!path.is_text()) return item(one, path, budget);
  Value out = one;
  budget.work(path.text().size() / 32);
  for (std::string& part : split_text(path.text(), ".", -1)) {
    budget.work(1);
    int64_t number = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    bool whole = error == std::errc() && end == part.data() + part.size();
    out = item(out, whole ? Value::of(number) : Value::of(std::move(part), budget), budget);
  }
  return out;
}

}  // namespace ds::text::jinja
