#include "support/config_reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <string_view>
#include <vector>

#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/config/document.h"
#include "core/config/key.h"
#include "core/config/schema.h"
#include "core/config/values.h"

namespace ds::test {
namespace {

// Returns a number as people write it: 5e8 rather than 500000000.
std::string number_text(const Json& value) {
  std::string text = value.dump();
  const size_t digits = text.find_last_not_of('0') + 1;
  if (text.find('.') == text.npos && digits == 1 && text.size() > 6)
    return fmt::format("{}e{}", text[0], text.size() - 1);
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

std::string kind_text(KeyKind kind) {
  constexpr const char* kTexts[] = {
      "boolean",     "integer",         "number",           "text",
      "texts",       "bytes",           "list of integers", "number or list",
      "two numbers", "list of objects", "object of numbers"};
  return kTexts[static_cast<int>(kind)];
}

// Returns the limits of a number as text. An upper limit of kMost or more is not mentioned.
std::string limits_text(const Limits& limits) {
  const bool low = std::isfinite(limits.low),
             high = limits.high < kMost || std::isfinite(limits.below);
  const std::string top = number_text(std::isfinite(limits.below) ? limits.below : limits.high);
  const std::string below = std::isfinite(limits.below) ? "below " : "";
  const std::string least = number_text(limits.low);
  if (low && high) return fmt::format(" from {} to {}{}", least, below, top);
  if (low) return fmt::format(" from {}", least);
  return high ? fmt::format(" up to {}{}", below, top) : "";
}

std::string takes_text(const Key& key) {
  if (key.words.empty()) return kind_text(key.kind) + limits_text(key.limits);
  std::string words = key.kind == KeyKind::text ? "" : kind_text(key.kind);
  for (size_t i = 0; i < key.words.size(); ++i) {
    const bool last = i + 1 == key.words.size();
    words += (words.empty() ? "" : last ? " or " : ", ") + Json(key.words[i]).dump();
  }
  return words;
}

std::string default_text(const Key& key) {
  const std::string& own = key.default_text;
  if (own == "required" || own.starts_with("derived") || own.starts_with("none")) return own;
  if (!own.empty()) return "default " + own;
  const Json& value = key.fallback;
  const bool nothing = value.is_null() || (value.is_string() && value.string().empty()) ||
                       (value.is_array() && value.array().empty());
  if (nothing) return "none";
  constexpr int64_t kMiB = 1 << 20;
  if (key.kind == KeyKind::bytes && value.integer() % kMiB == 0)
    return fmt::format("default {} MiB", value.integer() / kMiB);
  return "default " + (value.is_number() ? number_text(value) : value.dump());
}

std::string begin_of(const std::string& path) { return fmt::format("<a id=\"{}\"></a>", path); }

// Returns text of the page with each link replaced by its label.
std::string plain(std::string_view doc) {
  std::string out;
  while (!doc.empty()) {
    const size_t open = doc.find('['), middle = doc.find("](", open), close = doc.find(')', middle);
    if (open == doc.npos || middle == doc.npos ||
        doc.substr(open, middle - open).find(']') != doc.npos) {
      // This bracket does not open a link: keep the text up to the next one.
      const size_t end = open == doc.npos ? doc.size() : open + 1;
      out += doc.substr(0, end);
      doc.remove_prefix(end);
      continue;
    }
    out += doc.substr(0, open);
    out += doc.substr(open + 1, middle - open - 1);
    doc.remove_prefix(close + 1);
  }
  return out;
}

Json strings(const std::vector<std::string>& words) {
  return Json(Json::Array(words.begin(), words.end()));
}

// Returns the spellings that editors should offer. Floating types may have a "torch." prefix.
std::vector<std::string> spellings(const std::vector<std::string>& words) {
  std::vector<std::string> out = words;
  const bool torch = std::find(words.begin(), words.end(), "float16") != words.end();
  for (size_t i = 0; torch && i < words.size(); ++i) out.push_back("torch." + words[i]);
  return out;
}

// Returns a regular expression for any of the words in upper or lower case, as choose() accepts
// them.
std::string any_case(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) {
    out += out.empty() ? "^(" : "|";
    for (char c : word) {
      const std::string lower = ascii_lower(std::string(1, c));
      out += is_ascii_letter(c)
                 ? fmt::format("[{}{}]", lower, static_cast<char>(lower[0] - 'a' + 'A'))
                 : std::string(1, c);
    }
  }
  return out + ")$";
}

void put_limits(Json& schema, const Limits& limits) {
  const auto bound = [](double x) {
    return x == std::floor(x) && std::fabs(x) < 1e15 ? Json(static_cast<int64_t>(x)) : Json(x);
  };
  if (std::isfinite(limits.low)) schema.set("minimum", bound(limits.low));
  if (std::isfinite(limits.high)) schema.set("maximum", bound(limits.high));
  if (std::isfinite(limits.below)) schema.set("exclusiveMaximum", bound(limits.below));
}

Json numbers_schema(const char* type, const Limits& limits) {
  Json items = Json::Object{};
  items.set("type", type);
  put_limits(items, limits);
  return items;
}

// Returns the schema of a key. Every key accepts null for "not given", and most accept the text
// "auto".
Json key_schema(const Key& key) {
  Json out = Json::Object{};
  out.set("description", plain(key.doc));
  std::vector<std::string> types, texts;
  const bool word = std::find(key.words.begin(), key.words.end(), "auto") != key.words.end();
  if (takes_auto(key.path) && !word) texts.emplace_back("auto");
  switch (key.kind) {
    case KeyKind::boolean:
      types = {"boolean", "integer"};
      put_limits(out, {.low = 0, .high = 1});
      if (truth_at(key.path, "true"))
        texts.insert(texts.end(),
                     {"true", "false", "yes", "no", "on", "off", "t", "f", "y", "n", "1", "0"});
      texts.insert(texts.end(), key.words.begin(), key.words.end());
      break;
    case KeyKind::integer:
    case KeyKind::number:
      types = {key.kind == KeyKind::integer ? "integer" : "number"};
      put_limits(out, key.limits);
      break;
    case KeyKind::numbers:
      types = {"number", "array"};
      put_limits(out, key.limits);
      out.set("items", numbers_schema("number", key.limits));
      break;
    case KeyKind::integers:
    case KeyKind::pair:
      types = {"array"};
      out.set("items",
              numbers_schema(key.kind == KeyKind::pair ? "number" : "integer", key.limits));
      if (key.kind == KeyKind::pair) {
        out.set("minItems", 2);
        out.set("maxItems", 2);
      }
      break;
    case KeyKind::objects:
      types = {"array"};
      out.set("items", Json::parse(R"({"type": "object"})"));
      break;
    case KeyKind::named_numbers:
      types = {"object"};
      out.set("additionalProperties", numbers_schema("number", key.limits));
      break;
    case KeyKind::texts:
      types = {"array", "string"};
      out.set("items", Json::parse(R"({"type": "string"})"));
      break;
    case KeyKind::bytes:
      types = {"integer", "string"};
      put_limits(out, key.limits);
      out.set("pattern", takes_auto(key.path) ? "^[0-9]|^auto$" : "^[0-9]");
      break;
    case KeyKind::text:
      types = {"string"};
  }
  const bool any_text = std::find(types.begin(), types.end(), "string") != types.end();
  if (any_text && !key.words.empty() && key.kind == KeyKind::text) {
    std::vector<std::string> words = spellings(key.words);
    words.insert(words.end(), texts.begin(), texts.end());
    Json values = strings(words);
    values.array().emplace_back();
    Json listed = Json::Object{}, matched = Json::Object{};
    listed.set("enum", values);
    matched.set("pattern", any_case(key.words));
    out.set("anyOf", Json(Json::Array{listed, matched}));
  } else if (!any_text && !texts.empty()) {
    types.emplace_back("string");
    out.set("pattern", any_case(texts));
  }
  types.emplace_back("null");
  out.set("type", strings(types));
  if (!key.fallback.is_null() && key.default_text.empty() && !key.fallback.is_infinity())
    out.set("default", key.fallback);
  return out;
}

// Returns the schema of a section, without its members.
Json empty_section(const std::string& path) {
  Json out = Json::Object{};
  std::vector<std::string> types{"object", "null"};
  if (takes_auto(path) || path == "topology") {  // "auto" means topology.levels
    types.emplace_back("string");
    out.set("pattern", "^auto$");
  }
  if (path == "zero_optimization") types.emplace_back("boolean");  // true means stage 1
  out.set("type", strings(types));
  out.set("additionalProperties", path.empty());
  out.set("properties", Json::Object{});
  return out;
}

// Adds the schema of a key to the properties of the section that its path leads to.
void put_property(Json& section, const std::string& path, const std::string& rest,
                  const Json& schema) {
  for (auto& [name, properties] : section.object()) {
    if (name != "properties") continue;
    const size_t dot = rest.find('.');
    if (dot == rest.npos) {
      if (!properties.find(rest)) properties.set(rest, schema);
      return;
    }
    const std::string head = rest.substr(0, dot), at = path.empty() ? head : path + "." + head;
    if (!properties.find(head)) properties.set(head, empty_section(at));
    for (auto& [member, inside] : properties.object()) {
      if (member == head) put_property(inside, at, rest.substr(dot + 1), schema);
    }
  }
}

Json foreign_schema(const ForeignKey& key) {
  Json out = Json::Object{};
  const bool refused = key.rule == ForeignKey::Rule::only ||
                       key.rule == ForeignKey::Rule::section ||
                       key.rule == ForeignKey::Rule::nested;
  out.set("description",
          refused ? "DeepSpeed's; accepted only with the value that means off: " + key.reason
                  : std::string("DeepSpeed's; accepted without effect"));
  return out;
}

Json renamed(Json schema, const std::string& path) {
  schema.set("description", "Another name of " + path);
  return schema;
}

}  // namespace

std::string config_page_of_rows(std::string page) {
  size_t before = page.find("<a id=");
  for (const Key& key : config_keys()) {
    const std::string begin = begin_of(key.path);
    const std::string entry = fmt::format("{}`{}`, *{}; {}*\n: {}", begin, key.path,
                                          takes_text(key), default_text(key), key.doc);
    const size_t at = page.find(begin);
    if (at == page.npos) {
      page.insert(before, entry + "\n\n");
      before += entry.size() + 2;
      continue;
    }
    const size_t end = page.find("\n\n", at);
    page.replace(at, end - at, entry);
    before = at + entry.size() + 2;
  }
  return page;
}

Json config_schema() {
  Json root = empty_section("");
  const auto put = [&](const std::string& path, const Json& schema) {
    put_property(root, "", path, schema);
  };
  for (const Key& key : config_keys()) {
    const Json schema = key_schema(key);
    put(key.path, schema);
    if (!key.other.empty()) put(key.other_path(), renamed(schema, key.path));
    if (key.path.starts_with("bf16."))
      put("bfloat16." + key.path.substr(5), renamed(schema, key.path));
    for (const DeprecatedName& name : kDeprecatedNames) {
      if (key.path != name.path) continue;
      // Under their names of earlier versions these keys were switches, and true meant "cpu".
      const bool on_or_off = key.kind == KeyKind::boolean || key.path.ends_with(".device");
      if (on_or_off)
        put(name.name, renamed(Json::parse(R"({"type": ["boolean", "integer", "string", "null"]})"),
                               key.path));
    }
    if (key.path == "gradient_clipping")
      put(kMaxGradNorm, renamed(numbers_schema("number", key.limits), key.path));
  }
  for (const ForeignKey& key : foreign_keys()) put(key.path, foreign_schema(key));
  Json out = Json::Object{};
  out.set("$schema", "http://json-schema.org/draft-07/schema#");
  out.set("title", "libds configuration");
  out.set("description",
          "Written by ./run abi from the rows of the keys; docs/reference/config.md has the same "
          "texts.");
  out.set("type", "object");
  for (const auto& [name, value] : root.object()) {
    if (name == "properties") out.set(name, value);
  }
  return out;
}

}  // namespace ds::test
