#include "data/pairs.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/json_data.h"

namespace ds {
namespace {

const Json* given_member(const Json& line, const char* name) {
  const Json* value = line.find(name);
  return value && !value->is_null() ? value : nullptr;
}

// Compares values; the order of members does not count.
bool equal(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) {
    return a.object().size() == b.object().size() &&
           std::ranges::all_of(a.object(), [&](const auto& member) {
             const Json* other = b.find(member.first);
             return other && equal(member.second, *other);
           });
  }
  if (!a.is_array() || !b.is_array()) return a.dump() == b.dump();
  return std::ranges::equal(a.array(), b.array(), equal);
}

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Returns the length of the implicit prompt of two texts. If one is the beginning of the other, the
// prompt ends before its last character.
size_t common_beginning(const std::string& a, const std::string& b) {
  const size_t least = std::min(a.size(), b.size());
  size_t at = 0;
  while (at < least && a[at] == b[at]) ++at;
  const bool ended = at == least && least > 0;
  if (ended) --at;
  while (at > 0 && (continues_character(a[at]) || continues_character(b[at]))) --at;
  if (!ended && at > 0 && a[at - 1] == ' ') --at;
  return at;
}

size_t common_messages(const Json::Array& a, const Json::Array& b) {
  const size_t least = std::min(a.size(), b.size());
  size_t at = 0;
  while (at < least && equal(a[at], b[at])) ++at;
  return at == least && least > 0 ? at - 1 : at;
}

// Removes the prompt from both completions and returns it.
Json take_prompt(Json& chosen, Json& rejected) {
  if (chosen.is_string()) {
    const std::string a = chosen.string(), b = rejected.string();
    const size_t length = common_beginning(a, b);
    chosen = a.substr(length);
    rejected = b.substr(length);
    return a.substr(0, length);
  }
  Json::Array &a = chosen.array(), &b = rejected.array();
  const auto length = static_cast<std::ptrdiff_t>(common_messages(a, b));
  Json::Array prompt(a.begin(), a.begin() + length);
  a.erase(a.begin(), a.begin() + length);
  b.erase(b.begin(), b.begin() + length);
  return prompt;
}

bool is_empty(const Json& value) {
  if (value.is_string()) return value.string().empty();
  return std::ranges::all_of(value.array(), [](const Json& message) {
    const Json* content = message.is_object() ? message.find("content") : nullptr;
    return content && content->is_string() && content->string().empty();
  });
}

// Returns a member of a pair, which must be a text or a list.
Json completion(const Json& line, const char* name) {
  const Json* value = given_member(line, name);
  if (!value)
    raise(DS_ERROR_CONFIG, "preference training needs pairs, but the line has no \"{}\"", name);
  if (!value->is_string() && !value->is_array())
    raise(DS_ERROR_CONFIG, "\"{}\" must be a text or a list of messages, got {}", name,
          value->kind());
  return *value;
}

std::string line_of(const Json& line, const Json& prompt, const Json& answer) {
  Json out{Json::Object{}};
  for (const auto& [name, value] : line.object()) {
    if (name == "tools" || name == "chat_template_kwargs") out.set(name, value);
  }
  out.set("prompt", prompt);
  out.set("completion", answer);
  return out.dump();
}

std::array<std::string, 2> split(const Json& line) {
  if (!line.is_object()) raise(DS_ERROR_CONFIG, "a line must be an object, got {}", line.kind());
  Json chosen = completion(line, "chosen"), rejected = completion(line, "rejected");
  if (chosen.is_string() != rejected.is_string())
    raise(DS_ERROR_CONFIG, "\"chosen\" and \"rejected\" must be of one kind, got {} and {}",
          chosen.kind(), rejected.kind());
  if (equal(chosen, rejected))
    raise(DS_ERROR_CONFIG, "\"chosen\" and \"rejected\" are equal, so there is nothing to prefer");
  const Json* given = given_member(line, "prompt");
  const bool same_kind = given && given->is_string() == chosen.is_string();
  const Json prompt = same_kind ? *given : take_prompt(chosen, rejected);
  if (same_kind && !given->is_string() && !given->is_array())
    raise(DS_ERROR_CONFIG, "\"prompt\" must be a text or a list of messages, got {}",
          given->kind());
  if (is_empty(prompt)) {
    raise(DS_ERROR_CONFIG, "the pair has no prompt: {}",
          same_kind ? "\"prompt\" is empty"
                    : "there is no \"prompt\", and \"chosen\" and \"rejected\" begin differently");
  }
  for (const auto& [name, value] : {std::pair("chosen", &chosen), {"rejected", &rejected}})
    if (is_empty(*value)) raise(DS_ERROR_CONFIG, "\"{}\" is an empty completion", name);
  return {line_of(line, prompt, chosen), line_of(line, prompt, rejected)};
}

}  // namespace

std::array<std::string, 2> pair_lines(const std::string& line, const std::string& where) {
  try {
    return split(parse_json_data(line, "JSON"));
  } catch (const Error& error) {
    raise(error.status(), "{}: {}", where, error.what());
  }
}

}  // namespace ds
