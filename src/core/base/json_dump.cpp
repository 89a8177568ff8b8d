// Implements Json::dump. The output does not depend on the locale, and finite doubles have the
// shortest form that parses back to the same bits.
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>

#include "core/base/json.h"
#include "core/base/utf8.h"

namespace ds {
namespace {

void dump_string(std::string& out, std::string_view text) {
  static constexpr char hex[] = "0123456789abcdef";
  out += '"';
  while (!text.empty()) {
    char c = text.front();
    size_t length = utf8_sequence(text);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c >= 0 && c < 0x20) {
      out += {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
    } else if (length == 0) {
      // Bytes that are not UTF-8 are replaced, so that the document stays valid.
      out += "\\ufffd";
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

void dump_real(std::string& out, double x) {
  // JSON has no NaN or infinity. Those that were parsed are kinds of their own (json.h).
  if (!std::isfinite(x)) {
    out += "null";
    return;
  }
  char buffer[40];
  auto [end, code] = std::to_chars(buffer, buffer + sizeof buffer, x);
  std::string_view digits(buffer, static_cast<size_t>(end - buffer));
  out += digits;
  // Makes parse() read the number as a real again.
  if (digits.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void dump_value(std::string& out, const Json& value, int indent, int depth) {
  auto line = [&](int level) {
    if (indent > 0)
      out += '\n' + std::string(static_cast<size_t>(indent) * static_cast<size_t>(level), ' ');
  };
  if (value.is_array()) {
    out += '[';
    const char* separator = "";
    for (const Json& item : value.array()) {
      out += separator;
      line(depth + 1);
      dump_value(out, item, indent, depth + 1);
      separator = indent > 0 ? "," : ", ";
    }
    if (!value.array().empty()) line(depth);
    out += ']';
  } else if (value.is_object()) {
    out += '{';
    const char* separator = "";
    for (const auto& [name, item] : value.object()) {
      out += separator;
      line(depth + 1);
      dump_string(out, name);
      out += ": ";
      dump_value(out, item, indent, depth + 1);
      separator = indent > 0 ? "," : ", ";
    }
    if (!value.object().empty()) line(depth);
    out += '}';
  } else if (value.is_string()) {
    dump_string(out, value.string());
  } else if (value.is_integer()) {
    out += std::to_string(value.integer());
  } else if (value.is_number()) {
    dump_real(out, value.number());
  } else if (value.is_infinity()) {
    out += value.is_negative_infinity() ? "-Infinity" : "Infinity";
  } else if (value.is_nan()) {
    out += "NaN";
  } else {
    out += value.is_null() ? "null" : value.boolean() ? "true" : "false";
  }
}

}  // namespace

std::string Json::dump(int indent) const {
  std::string out;
  dump_value(out, *this, indent, 0);
  return out;
}

}  // namespace ds
