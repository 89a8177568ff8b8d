#include <filesystem>

#include "data/tokenizers/file_text.h"
#include "data/tokenizers/hugging_face.h"

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

}  // namespace

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
    out.begin_given |= take_flag(json, "add_bos_token", out.add_begin);
    out.end_given |= take_flag(json, "add_eos_token", out.add_end);
    take_flag(json, "add_prefix_space", out.add_prefix_space);
  }
  return out;
}

}  // namespace ds
