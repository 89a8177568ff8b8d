// Applies the files beside a tokenizer.json to its content, so that the reader of that file sees
// what Transformers would build.
//
// Problem: Transformers does not load every tokenizer.json as it is. Depending on the class that
// the folder names, it builds normalizer, pre-tokenizer or post-processor anew from flags of
// tokenizer_config.json, and it adds tokens from there. Algorithm: the JSON is changed in place,
// part by part. Content that does not have the form of a tokenizer.json is left alone, since its
// reader reports errors with their place.
#include "text/tokenizers/files_beside.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "text/tokenizers/tokenizer_class.h"

namespace ds::text {
namespace {

// Returns null unless the JSON is an object with that member.
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

// Calls change(part) for each part of a normalizer or pre-tokenizer that is not a Sequence. A
// Sequence has its parts under the key `list`. Removes the parts for which change() returns false.
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

// Applies add_prefix_space. This sets the flag of a ByteLevel and the scheme of a Metaspace. If it
// is false, a Prepend normalizer is removed.
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

// Applies the flags of BERT's normalizer. Flags that no file gives stay as they are.
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

// Names the tokens that a class has if no file names them. Returns false for classes whose tokens
// are not known here.
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
// and its model uses the named token for words without pieces.
void set_bert_tokens(Json& json, const SpecialTokens& beside, const Json::Array& added) {
  Json& model = *member(json, "model");
  if (beside.tokenizer_class != "BertTokenizer" || type_of(model) != "WordPiece") return;
  if (!beside.unknown.empty()) model.set("unk_token", beside.unknown);
  // Without these tokens, post_processor stays as the file has it.
  if (beside.cls.empty() || beside.sep.empty()) return;
  Json around;
  around.set("type", "BertProcessing");
  for (auto [key, content] : {std::pair{"sep", beside.sep}, {"cls", beside.cls}}) {
    auto token = std::ranges::find_if(
        added, [&](const Json& one) { return one.at("content").string() == content; });
    const Json* id = token != added.end() ? token->find("id") : model.at("vocab").find(content);
    if (!id) return;
    around.set(key, Json::Array{content, *id});
  }
  json.set("post_processor", std::move(around));
}

}  // namespace

// Order matters: names are completed first, since they decide which added tokens are special.
void add_files_beside(Json& json, SpecialTokens& beside) {
  if (!json.is_object()) return;
  const Json* padding = json.find("padding");
  const Json* pad = padding && padding->is_object() ? padding->find("pad_token") : nullptr;
  auto name = [&](const char* key, const std::string& content) {
    if (!beside.given.contains(key)) beside.name_otherwise(key, content);
  };
  if (!name_usual_tokens(beside.tokenizer_class, name) && pad && pad->is_string())
    name("pad_token", pad->string());

  // LlamaTokenizer leaves a byte-level file as it is.
  const bool as_it_is = beside.tokenizer_class == "LlamaTokenizer" && has_byte_level(json);
  if (beside.add_prefix_space && takes_prefix_space(beside.tokenizer_class) && !as_it_is)
    set_prefix_space(json, *beside.add_prefix_space);
  if (takes_bert_flags(beside.tokenizer_class)) set_bert_flags(json, beside);
  const Json *added = json.find("added_tokens"), *model = json.find("model");
  const Json* vocabulary = model && model->is_object() ? model->find("vocab") : nullptr;
  if ((added && !added->is_null() && !added->is_array()) || !vocabulary) return;
  Json::Array merged = merge_added_tokens(
      added && added->is_array() ? added->array() : Json::Array(), *vocabulary, beside);
  set_bert_tokens(json, beside, merged);
  if (!merged.empty()) json.set("added_tokens", std::move(merged));
}

}  // namespace ds::text
