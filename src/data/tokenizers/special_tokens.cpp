#include "data/tokenizers/special_tokens.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "data/tokenizers/file_text.h"

namespace ds {
namespace {

// A token is named by its spelling or by an object with "content".
void take_text(const Json& json, const char* key, std::string& out) {
  const Json* value = json.find(key);
  if (value && value->is_object()) value = value->find("content");
  if (value && value->is_string() && out.empty()) out = value->string();
}

bool take_flag(const Json& json, const char* key, bool& out) {
  const Json* value = json.find(key);
  if (!value || !value->is_bool()) return false;
  out = value->boolean();
  return true;
}

// A token's entry must have `id` from 0 and `content`, told with the file's name.
void add_token(std::map<int64_t, NamedToken>& tokens, const std::string& file, int64_t id, Json entry) {
  const Json* content = entry.find("content");
  if (id < 0 || id > INT32_MAX || !content || !content->is_string()) {
    raise(DS_ERROR_CORRUPT, "{}: an added token must have an id from 0 and a content, got id {} and {}", file,
          id, entry.dump());
  }
  std::string text = content->string();
  entry.set("id", id);
  tokens[id] = {static_cast<int32_t>(id), std::move(text), file, std::move(entry)};
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

}  // namespace

std::vector<NamedToken> read_added_tokens(const std::string& folder) {
  std::map<int64_t, NamedToken> tokens;
  if (std::string file = folder + "/added_tokens.json"; is_file(file)) {
    Json json = read_tokenizer_json(file);
    if (!json.is_object()) raise(DS_ERROR_CORRUPT, "{} must be an object, got {}", file, json.kind());
    for (const auto& [content, id] : json.object()) {
      Json entry;
      entry.set("content", content);
      add_token(tokens, file, id.is_integer() ? id.integer() : -1, std::move(entry));
    }
  }
  if (std::string file = folder + "/tokenizer_config.json"; is_file(file)) {
    Json json = read_tokenizer_json(file);
    const Json* added = json.is_object() ? json.find("added_tokens_decoder") : nullptr;
    if (added && !added->is_object()) {
      raise(DS_ERROR_CORRUPT, "{}: added_tokens_decoder must be an object, got {}", file, added->kind());
    }
    for (const auto& [key, entry] : added ? added->object() : Json::Object{}) {
      int64_t id = -1;
      auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      bool whole = error == std::errc() && end == key.data() + key.size();
      add_token(tokens, file, whole ? id : -1, entry);
    }
  }
  std::vector<NamedToken> out;
  for (auto& [id, token] : tokens) out.push_back(std::move(token));
  return out;
}

Json::Array added_entries(const std::string& folder, const Json& vocabulary,
                          const std::vector<std::string>& special) {
  Json::Array out;
  std::set<std::string> seen;
  for (NamedToken& token : read_added_tokens(folder)) {
    bool named = std::find(special.begin(), special.end(), token.content) != special.end();
    if (named && !token.entry.find("special")) token.entry.set("special", true);
    seen.insert(token.content);
    out.push_back(std::move(token.entry));
  }
  for (const std::string& content : special) {
    const Json* id = content.empty() ? nullptr : vocabulary.find(content);
    if (!id || !seen.insert(content).second) continue;
    Json token;
    token.set("id", *id);
    token.set("content", content);
    token.set("special", true);
    out.push_back(std::move(token));
  }
  return out;
}

SpecialTokens read_special_tokens(const std::string& folder) {
  SpecialTokens out;
  for (const char* name : {"/tokenizer_config.json", "/special_tokens_map.json"}) {
    std::error_code ignored;
    if (!std::filesystem::exists(std::filesystem::symlink_status(folder + name, ignored))) continue;
    Json json = read_tokenizer_json(folder + name);
    if (!json.is_object()) continue;
    take_text(json, "bos_token", out.begin);
    take_text(json, "eos_token", out.end);
    take_text(json, "unk_token", out.unknown);
    take_text(json, "pad_token", out.pad);
    take_text(json, "mask_token", out.mask);
    take_text(json, "cls_token", out.cls);
    take_text(json, "sep_token", out.sep);
    out.begin_given |= take_flag(json, "add_bos_token", out.add_begin);
    out.end_given |= take_flag(json, "add_eos_token", out.add_end);
    take_flag(json, "add_prefix_space", out.add_prefix_space);
    take_flag(json, "do_lower_case", out.do_lower_case);
    take_flag(json, "tokenize_chinese_chars", out.tokenize_chinese_chars);
    out.accents_given |= take_flag(json, "strip_accents", out.strip_accents);
  }
  return out;
}

}  // namespace ds
