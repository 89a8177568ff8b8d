// Parses the text of a configuration in any of the forms that people use.
//
// JSON is tried first. If that fails, the text is classified. A file of another kind is refused
// with the name of that kind, and block YAML is read as Accelerate's. In any other text, comments
// and trailing commas are replaced by blanks, and JSON is tried again. The length stays the same,
// so an error is reported at its place in the file.
#include "core/config/config_text.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "core/base/ascii.h"
#include "core/base/block_yaml.h"
#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/config/accelerate.h"
#include "core/config/refuse.h"

namespace ds {
namespace {

constexpr const char* kForms = ": a configuration is JSON, or Accelerate's YAML";

// Returns the text with comments and trailing commas replaced by blanks. Length and line breaks are
// unchanged, so messages name the right places of the file.
std::string without_hjson(std::string_view text) {
  std::string out(text);
  // The last character outside blanks and comments, and the offset of the last comma if that comma
  // follows a value.
  char last = 0;
  size_t comma = out.npos;
  auto blank = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) out[i] = out[i] == '\n' ? '\n' : ' ';
  };
  for (size_t at = 0; at < out.size(); ++at) {
    const char c = out[at];
    const std::string_view two = std::string_view(out).substr(at, 2);
    if (c == '#' || two == "//") {
      blank(at, std::min(out.find('\n', at), out.size()));
    } else if (two == "/*") {
      const size_t end = out.find("*/", at + 2);
      blank(at, end == out.npos ? out.size() : end + 2);
    } else if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
      if (c == '"') {
        while (++at < out.size() && out[at] != '"') at += out[at] == '\\' ? 1 : 0;
      } else if (c == ',') {
        comma = std::string_view("{[,:").find(last) == std::string_view::npos && last != 0
                    ? at
                    : out.npos;
      } else if ((c == '}' || c == ']') && last == ',' && comma != out.npos) {
        out[comma] = ' ';
      }
      last = c;
    }
  }
  return out;
}

// Returns whether the first member's name has no double quotes, as in hjson and Python.
bool has_bare_name(std::string_view text) {
  const size_t open = text.find('{');
  if (open == text.npos) return false;
  const size_t at = text.find_first_not_of(" \t\r\n", open + 1);
  if (at == text.npos) return false;
  const char c = text[at];
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '\'';
}

// Returns the name of the kind of file that a text is, or "". The first line that is neither empty
// nor a comment decides: `name = value` or a header [section] means TOML or INI, and as many commas
// as in the next line mean CSV.
std::string other_form(std::string_view text) {
  std::string_view line;
  size_t at = 0;
  auto says_nothing = [&] {
    return line.empty() || line.front() == '#' || line.front() == ';' || line == "---";
  };
  while (at < text.size() && says_nothing()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    line = text.substr(at, end - at);
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
    at = end + 1;
  }
  if (says_nothing()) return "a text without settings: it is empty or has only comments";
  auto of_name = [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || c == '_' || c == '.' || c == '-';
  };
  const size_t name = static_cast<size_t>(std::ranges::find_if_not(line, of_name) - line.begin());
  const size_t sign = line.find_first_not_of(" \t", name);
  const bool assigns = name > 0 && sign != line.npos && line[sign] == '=';
  const bool section =
      line.size() > 2 && line.front() == '[' && line.back() == ']' && is_ascii_letter(line[1]);
  if (assigns || section) return "TOML, or a file of settings like it";
  const std::string_view next = text.substr(std::min(at, text.size()));
  const auto commas = std::ranges::count(line, ',');
  const bool row =
      commas > 0 && commas == std::count(next.begin(), std::ranges::find(next, '\n'), ',');
  return row && line.find_first_of("{}[]:/") == line.npos ? "a table (CSV)" : "";
}

// Parses a text that Json::parse() refused with the error `fault`. Some of its own messages begin
// with that of `fault`.
Json parse_dialect(std::string_view text, std::string_view source, const Error& fault) {
  if (text.empty()) raise(DS_ERROR_CONFIG, "{}; it is empty", fault.what());
  const std::string kind = content_kind(text.substr(0, kContentHead), Wanted::text);
  const std::string form = kind.empty() ? other_form(text) : kind;
  const bool yaml = looks_like_yaml(text) && form.empty();
  if (!form.empty()) {
    raise(DS_ERROR_CONFIG, "{}: is {}{}", source, form, kind.empty() ? kForms : "");
  }
  if (yaml) return accelerate_config(parse_block_yaml(text, source), source);
  const std::string clean = without_hjson(text);
  if (has_bare_name(clean)) {
    raise(DS_ERROR_CONFIG,
          "{}; the file looks like hjson or Python: write names and texts in double quotes "
          "(comments and trailing commas are accepted)",
          fault.what());
  }
  if (clean.find_first_of("{[\"") == clean.npos) {
    const std::string other = content_kind(text.substr(0, kContentHead), Wanted::tokens);
    raise(DS_ERROR_CONFIG, "{}: is {}{}", source, other.empty() ? "not a text" : other, kForms);
  }
  return Json::parse(clean, source);
}

// Refuses the JSON files of a model's folder, which people give by mistake.
void refuse_model_files(const Json& document, std::string_view source) {
  struct Form {
    const char *key, *beside, *meaning;
  };
  constexpr Form forms[] = {
      {"architectures", "model_type",
       "the config.json of a Hugging Face model: give its folder by --model or model.folder, "
       "beside a configuration of the training"},
      {"peft_type", "base_model_name_or_path", "the configuration of an adapter of PEFT"},
      {"tokenizer_class", "model_max_length", "the configuration of a tokenizer"}};
  for (const Form& form : forms) {
    if (document.find(form.key) && document.find(form.beside))
      refuse(source, "is {}", form.meaning);
  }
}

Json parse_any(std::string_view text, std::string_view source) {
  try {
    return Json::parse(text, source);
  } catch (const Error& fault) {
    return parse_dialect(text, source, fault);
  }
}

}  // namespace

Json parse_config_text(std::string_view text, std::string_view source) {
  Json document = parse_any(text, source);
  if (!document.is_object())
    refuse(source, "must be an object, {{\"KEY\": VALUE, ...}}, got {}", document.kind());
  refuse_model_files(document, source);
  return document;
}

}  // namespace ds
