#include "data/tokenizers/files_beside.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace ds {
namespace {

Json* member(Json& json, std::string_view key) {
  if (!json.is_object()) return nullptr;
  for (auto& [name, value] : json.object()) {
    if (name == key) return &value;
  }
  return nullptr;
}

std::string type_of(const Json& json) {
  const Json* type = json.is_object() ? json.find("type") : nullptr;
  return type && type->is_string() ? type->string() : "";
}

// Calls change(part) for each part of a normalizer or pre-tokenizer that is no Sequence itself, and
// takes those out for which it returns false.
template <typename F>
void change_parts(Json* json, std::string_view list, const F& change) {
  if (!json || json->is_null()) return;
  if (type_of(*json) != "Sequence") {
    if (!change(*json)) *json = Json();
    return;
  }
  Json* parts = member(*json, list);
  if (!parts || !parts->is_array()) return;
  for (Json& part : parts->array()) change_parts(&part, list, change);
  std::erase_if(parts->array(), [](const Json& part) { return part.is_null(); });
}

bool has_byte_level(Json& json) {
  bool found = false;
  change_parts(member(json, "pre_tokenizer"), "pretokenizers", [&](const Json& part) {
    found |= type_of(part) == "ByteLevel";
    return true;
  });
  return found;
}

std::string class_of(const SpecialTokens& beside) {
  std::string name = beside.tokenizer_class;
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

// Whether Transformers' class has the flags: those that only load the file have none.
// LlamaTokenizer leaves a byte-level file to one of these.
bool class_has_flags(const SpecialTokens& beside, Json& json) {
  std::string name = class_of(beside);
  if (name == "LlamaTokenizer") return !has_byte_level(json);
  return name != "PreTrainedTokenizer" && name != "TokenizersBackend" && name != "PythonBackend";
}

void set_prefix_space(Json& json, bool add) {
  change_parts(member(json, "pre_tokenizer"), "pretokenizers", [&](Json& part) {
    if (type_of(part) == "ByteLevel") part.set("add_prefix_space", add);
    if (type_of(part) == "Metaspace") {
      const Json* scheme = part.find("prepend_scheme");
      bool never = scheme && scheme->is_string() && scheme->string() == "never";
      if (!add) part.set("prepend_scheme", "never");
      if (add && never) part.set("prepend_scheme", "first");
    }
    return true;
  });
  if (add) return;
  change_parts(member(json, "normalizer"), "normalizers",
               [](const Json& part) { return type_of(part) != "Prepend"; });
}

void set_bert_flags(Json& json, const SpecialTokens& beside) {
  change_parts(member(json, "normalizer"), "normalizers", [&](Json& part) {
    if (type_of(part) != "BertNormalizer") return true;
    if (beside.do_lower_case) part.set("lowercase", *beside.do_lower_case);
    if (beside.tokenize_chinese_chars)
      part.set("handle_chinese_chars", *beside.tokenize_chinese_chars);
    if (beside.strip_accents) part.set("strip_accents", *beside.strip_accents);
    return true;
  });
}

// The tokens that a class has where no file names them, of those classes whose tokens are known.
// False for others.
template <typename F>
bool name_usual_tokens(std::string_view class_name, const F& name) {
  if (class_name == "BertTokenizer") {
    for (auto [key, content] : {std::pair{"unk_token", "[UNK]"},
                                {"sep_token", "[SEP]"},
                                {"pad_token", "[PAD]"},
                                {"cls_token", "[CLS]"},
                                {"mask_token", "[MASK]"}}) {
      name(key, content);
    }
    return true;
  }
  if (class_name != "GPT2Tokenizer") return false;
  for (const char* key : {"bos_token", "eos_token", "unk_token"}) name(key, "<|endoftext|>");
  return true;
}

// BertTokenizer puts the tokens that the files name around a text, whatever post_processor says,
// and its model gives words that it has no pieces for the named token.
void set_bert_tokens(Json& json, const SpecialTokens& beside, const Json::Array& added) {
  Json& model = *member(json, "model");
  if (class_of(beside) != "BertTokenizer" || type_of(model) != "WordPiece") return;
  if (!beside.unknown.empty()) model.set("unk_token", beside.unknown);
  if (beside.cls.empty() || beside.sep.empty()) return;  // null: stays as the file has it
  Json around;
  around.set("type", "BertProcessing");
  for (auto [key, content] : {std::pair{"sep", beside.sep}, {"cls", beside.cls}}) {
    auto token = std::find_if(added.begin(), added.end(), [&](const Json& one) {
      return one.at("content").string() == content;
    });
    const Json* id = token != added.end() ? token->find("id") : model.at("vocab").find(content);
    if (!id) return;
    around.set(key, Json::Array{content, *id});
  }
  json.set("post_processor", std::move(around));
}

}  // namespace

void add_files_beside(Json& json, SpecialTokens& beside) {
  if (!json.is_object()) return;
  const Json* padding = json.find("padding");
  const Json* pad = padding && padding->is_object() ? padding->find("pad_token") : nullptr;
  auto name = [&](const char* key, const std::string& content) {
    if (!beside.given.contains(key)) beside.name_otherwise(key, content);
  };
  if (!name_usual_tokens(class_of(beside), name) && pad && pad->is_string())
    name("pad_token", pad->string());

  if (class_has_flags(beside, json)) {
    if (beside.add_prefix_space) set_prefix_space(json, *beside.add_prefix_space);
    set_bert_flags(json, beside);
  }
  const Json *added = json.find("added_tokens"), *model = json.find("model");
  const Json* vocabulary = model && model->is_object() ? model->find("vocab") : nullptr;
  if ((added && !added->is_null() && !added->is_array()) || !vocabulary) return;
  Json::Array merged = merge_added_tokens(
      added && added->is_array() ? added->array() : Json::Array(), *vocabulary, beside);
  set_bert_tokens(json, beside, merged);
  if (!merged.empty()) json.set("added_tokens", std::move(merged));
}

}  // namespace ds
