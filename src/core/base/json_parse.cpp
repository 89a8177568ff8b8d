// Json::parse works in three steps: the scan refuses everything that cJSON would misread
// (json_scan.h), cJSON builds a tree from the clean text, and Builder creates the document from the
// tree and from the scan's lists.
#include <cJSON.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_data.h"
#include "core/base/json_scan.h"

namespace ds {
namespace {

using Tree = std::unique_ptr<cJSON, decltype(&cJSON_Delete)>;

// Returns whether a name must begin at byte `at`: after the '{' or a ',' of an object.
bool is_for_name(std::string_view clean, size_t at) {
  std::string open;
  char last = 0;
  for (size_t i = 0; i < at; ++i) {
    char c = clean[i];
    if (c == '"') {
      while (++i < at && clean[i] != '"') i += clean[i] == '\\' ? 1 : 0;
    } else if (c == '{' || c == '[') {
      open += c;
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    }
    if (std::string_view(" \t\r\n").find(c) == std::string_view::npos) last = c;
  }
  return open.ends_with('{') && (last == ',' || (last == '{' && clean[at] != '}'));
}

// Parses the clean text. Throws JsonFault with an offset in `text`. cJSON stores the position of an
// error in a global variable, so only one text is parsed at a time.
Tree parse_clean(const std::string& clean, std::string_view text) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  const char* end = nullptr;
  // The terminating zero is passed as part of the text, so that cJSON reports an unexpected end at
  // its offset.
  Tree tree(cJSON_ParseWithLengthOpts(clean.c_str(), clean.size() + 1, &end, 0), cJSON_Delete);
  auto at = std::min(static_cast<size_t>(end - clean.c_str()), clean.size());
  if (tree) at = std::min(clean.find_first_not_of(" \t\r\n", at), clean.size());
  if (tree && at == clean.size()) return tree;
  // If an object's name does not begin with a quote, cJSON reports the byte after it.
  if (!tree && at > 0 && clean[at - 1] != '"' && is_for_name(clean, at - 1)) --at;
  if (at == clean.size()) throw JsonFault{at, "syntax error: unexpected end of input"};
  throw JsonFault{at, fmt::format("syntax error: unexpected '{}'{}", text[at],
                                  tree ? " after the document" : "")};
}

class Builder {
 public:
  explicit Builder(JsonScan& scan) : scan_(scan) {}

  // Returns the document of a node. Strings and numbers come in the order of the scan's lists.
  // Elements of arrays are freed as they are converted, so that a large text is not in memory three
  // times.
  Json value(cJSON& node) {
    if (cJSON_IsNumber(&node)) return std::move(scan_.numbers.at(number_++));
    if (cJSON_IsBool(&node)) return Json(cJSON_IsTrue(&node) != 0);
    if (cJSON_IsArray(&node)) return array(node);
    if (cJSON_IsObject(&node)) return object(node);
    if (!cJSON_IsString(&node)) return {};
    // cJSON's strings end at a zero byte, so the scan replaced each by a blank; here the zero bytes
    // are restored.
    std::string text = node.valuestring;
    for (; zero_ < scan_.zeros.size() && scan_.zeros[zero_].first == string_; ++zero_)
      text.at(scan_.zeros[zero_].second) = '\0';
    ++string_;
    return Json(std::move(text));
  }

 private:
  Json array(cJSON& node) {
    Json::Array out;
    while (node.child) {
      Tree item(cJSON_DetachItemViaPointer(&node, node.child), cJSON_Delete);
      out.push_back(value(*item));
    }
    return Json(std::move(out));
  }

  // Returns the object of a node. Duplicate names are found by linear search in a small object and
  // by a set in a larger one, because most objects are small, and a set for each would cost more
  // than the rest of the parse.
  Json object(cJSON& node) {
    constexpr size_t small = 16;
    Json::Object out;
    std::unordered_set<std::string_view> names;
    for (cJSON* item = node.child; item; item = item->next) {
      size_t place = scan_.strings.at(string_);
      if (zero_ < scan_.zeros.size() && scan_.zeros[zero_].first == string_)
        throw JsonFault{place, "\\u0000 in a name is not supported"};
      ++string_;
      std::string_view name = item->string;
      // When the object has `small` members, all names read so far are added to the set.
      if (out.size() == small) {
        for (const cJSON* old = node.child; old != item; old = old->next) names.insert(old->string);
      }
      bool taken = out.size() < small
                       ? std::ranges::any_of(out, [&](const auto& m) { return m.first == name; })
                       : !names.insert(name).second;
      if (taken) throw JsonFault{place, fmt::format("duplicate key '{}'", name)};
      Json member = value(*item);
      out.emplace_back(name, std::move(member));
    }
    return Json(std::move(out));
  }

  JsonScan& scan_;
  size_t number_ = 0, string_ = 0, zero_ = 0;
};

}  // namespace

// Offsets in the clean text and in `text` are the same, so a fault is located in `text`. Columns
// count bytes from 1.
static Json parse_text(std::string_view text, std::string_view source, bool data) try {
  JsonScan scan = scan_json(text, data);
  Tree tree = parse_clean(scan.clean, text);
  scan.clean = {};
  return Builder(scan).value(*tree);
} catch (const JsonFault& fault) {
  std::string_view before = text.substr(0, fault.at);
  size_t line = 1 + static_cast<size_t>(std::ranges::count(before, '\n'));
  size_t column = fault.at - (before.find_last_of('\n') + 1) + 1;
  raise(DS_ERROR_CONFIG, "{}: line {}, column {}: {}", source, line, column, fault.message);
}

Json Json::parse(std::string_view text, std::string_view source) {
  return parse_text(text, source, false);
}

Json parse_json_data(std::string_view text, std::string_view source) {
  return parse_text(text, source, true);
}

}  // namespace ds
