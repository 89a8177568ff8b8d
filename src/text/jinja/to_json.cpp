// Python's json.dumps. Characters beyond ASCII are written as they are unless ensure_ascii is set.
#include "text/jinja/to_json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "core/base/utf8.h"
#include "text/jinja/fault.h"

namespace ds::text::jinja {
namespace {

void append_unit(std::string& out, uint32_t unit) { out += fmt::format("\\u{:04x}", unit); }

// Escapes the characters that JSON requires and, with `ascii`, all characters beyond ASCII.
std::string quoted(std::string_view text, bool ascii) {
  std::string out = "\"";
  while (!text.empty()) {
    size_t size = std::max<size_t>(utf8_sequence(text), 1);
    std::string_view one = text.substr(0, size);
    text.remove_prefix(size);
    constexpr std::string_view kNamed = "\"\\\n\r\t\b\f", kNames = "\"\\nrtbf";
    auto byte = static_cast<uint8_t>(one[0]);
    if (size_t known = kNamed.find(one[0]); size == 1 && known != kNamed.npos) {
      out.append("\\") += kNames[known];
    } else if (byte < 0x20) {
      append_unit(out, byte);
    } else if (size == 1 || !ascii) {
      out += one;
    } else if (auto point = static_cast<uint32_t>(utf8_first(one)); point < 0x10000) {
      append_unit(out, point);
    } else {
      // Python escapes characters beyond the basic plane as a pair of surrogates.
      append_unit(out, 0xd800 + ((point - 0x10000) >> 10));
      append_unit(out, 0xdc00 + ((point - 0x10000) & 0x3ff));
    }
  }
  return out + "\"";
}

// A recursive writer of values, whose depth was bounded when they were created.
class Writer {
 public:
  Writer(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  // Refuses values that have no JSON form, such as functions and undefined ones.
  void write(const Value& value, int level) {
    budget_.work(1);
    if (value.is_none()) return put("null");
    if (value.is_bool()) return put(value.truth() ? "true" : "false");
    if (value.is_int()) return put(fmt::format("{}", value.integer()));
    if (value.is_real()) return put(number(value.number()));
    if (value.is_text()) {
      budget_.memory(value.text().size());
      return put(quoted(value.text(), style_.ensure_ascii));
    }
    if (value.is_list()) return list(value.items().items, level);
    if (value.is_dict()) return dict(value.members(), level);
    fault(DS_ERROR_CONFIG, "tojson: a {} has no JSON form", value.kind());
  }

  std::string take() { return std::move(out_); }

 private:
  // Writes NaN and infinities as Python does, although JSON has no such numbers.
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_text(value);
  }

  void put(std::string_view text) {
    budget_.memory(text.size());
    out_ += text;
  }

  // Begins a new line in the indented form; does nothing in the compact form.
  void line(int level) {
    if (!style_.lines) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(style_.indent);
  }

  void list(const Values& items, int level) {
    put("[");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(style_.comma);
      line(level + 1);
      write(items[i], level + 1);
    }
    if (!items.empty()) line(level);
    put("]");
  }

  void dict(const Dict& dict, int level) {
    std::vector<const std::pair<std::string, Value>*> items;
    for (const auto& one : dict.items) items.push_back(&one);
    // Bytes of UTF-8 sort like the code points by which Python sorts.
    if (style_.sort_keys) {
      std::ranges::sort(items, [](const auto* a, const auto* b) { return a->first < b->first; });
    }
    put("{");
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) put(style_.comma);
      line(level + 1);
      put(quoted(items[i]->first, style_.ensure_ascii));
      put(style_.colon);
      write(items[i]->second, level + 1);
    }
    if (!items.empty()) line(level);
    put("}");
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  Writer writer(style, budget);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace ds::text::jinja
