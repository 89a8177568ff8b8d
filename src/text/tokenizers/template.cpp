// Post-processors of a tokenizer.json, reduced to the tokens before and after a single text.
#include "text/tokenizers/template.h"

#include <fmt/core.h>

#include <string_view>

#include "core/base/json.h"
#include "text/tokenizers/word_model.h"

namespace ds::text {
namespace {

// Reads a pair such as ["<s>", 0].
int32_t read_pair(Section& section, std::string_view key) {
  const Json::Array& pair = section.array(key);
  if (pair.size() != 2 || !pair[1].is_integer() || pair[1].integer() < 0 ||
      pair[1].integer() > max_token_id) {
    raise(DS_ERROR_CORRUPT, "{} must be a token and its id, got {}", section.path(key),
          section.at(key).dump());
  }
  return static_cast<int32_t>(pair[1].integer());
}

// Appends the ids of the named entry of "special_tokens".
void add_special(Section& specials, const std::string& name, std::vector<int32_t>& out) {
  Section special = specials.inside(name);
  for (const Json& id : special.array("ids")) {
    if (!id.is_integer() || id.integer() < 0 || id.integer() > max_token_id) {
      raise(DS_ERROR_CORRUPT, "{} must be ids from 0 to {}, got {}", special.path("ids"),
            max_token_id, id.dump());
    }
    out.push_back(static_cast<int32_t>(id.integer()));
  }
  special.skip("id");
  special.skip("tokens");
  special.done();
}

// Tokens before the Sequence are put before the text, the others after it.
Template read_single(Section& section) {
  Template out;
  section.skip("pair");
  bool seen = false;
  size_t index = 0;
  Section specials = section.inside("special_tokens");
  for (const Json& one : section.array("single")) {
    Section item(one, fmt::format("{}[{}]", section.path("single"), index++));
    if (item.find("Sequence")) {
      if (seen) item.unsupported("Sequence");
      seen = true;
    } else {
      Section special = item.inside("SpecialToken");
      add_special(specials, special.text("id"), seen ? out.after : out.before);
    }
    item.done();
  }
  // A template without a Sequence would drop the text itself.
  if (!seen) raise(DS_ERROR_CORRUPT, "{} has no Sequence", section.path("single"));
  return out;
}

}  // namespace

// Later processors of a Sequence put their tokens further outside.
Template read_template(const Json* json, const std::string& where) {
  if (!json || json->is_null()) return {};
  Section section(*json, where);
  std::string type = section.text("type");
  Template out;
  if (type == "Sequence") {
    size_t index = 0;
    for (const Json& one : section.array("processors")) {
      Template next =
          read_template(&one, fmt::format("{}[{}]", section.path("processors"), index++));
      out.before.insert(out.before.begin(), next.before.begin(), next.before.end());
      out.after.insert(out.after.end(), next.after.begin(), next.after.end());
    }
  } else if (type == "TemplateProcessing") {
    out = read_single(section);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    out = {{read_pair(section, "cls")}, {read_pair(section, "sep")}};
  } else if (type != "ByteLevel") {
    section.unsupported("type");
  }
  // These flags change offsets only.
  for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) section.skip(key);
  section.done();
  return out;
}

}  // namespace ds::text
