// Reads vocab.json and merges.txt, the two files of GPT-2 (also of OPT and others), by building the
// equivalent tokenizer.json of byte-level BPE.
#include <algorithm>
#include <memory>
#include <sstream>
#include <string>

#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file_kind.h"
#include "text/tokenizer.h"
#include "text/tokenizers/file_text.h"
#include "text/tokenizers/hugging_face.h"
#include "text/tokenizers/kinds.h"
#include "text/tokenizers/special_tokens.h"

namespace ds::text {
namespace {

// Reads one merge from each line, after an optional first line "#version: ...".
Json::Array read_merges(const std::string& path) {
  Json::Array merges;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || (merges.empty() && line.starts_with("#version"))) continue;
    merges.emplace_back(line);
  }
  return merges;
}

// Returns the template that puts `begin` before a text.
Json begin_template(const Json::Array& added, const std::string& begin, const std::string& path) {
  if (begin.empty()) {
    raise(DS_ERROR_CORRUPT, "{}: add_bos_token is true, but the files beside it name no bos_token",
          path);
  }
  auto token = std::ranges::find_if(
      added, [&](const Json& one) { return one.at("content").string() == begin; });
  Json cls, special, out, item, sequence;
  special.set("ids", Json::Array{token->at("id")});
  cls.set(begin, std::move(special));
  item.set("id", begin);
  Json first, second;
  first.set("SpecialToken", std::move(item));
  sequence.set("id", "A");
  second.set("Sequence", std::move(sequence));
  out.set("type", "TemplateProcessing");
  out.set("single", Json::Array{std::move(first), std::move(second)});
  out.set("special_tokens", std::move(cls));
  return out;
}

}  // namespace

std::unique_ptr<const Tokenizer> open_gpt2_pair(const std::string& folder) {
  std::string path = folder + "/vocab.json";
  Json vocabulary = read_tokenizer_json(path);
  if (!vocabulary.is_object())
    raise(DS_ERROR_CORRUPT, "{} must be an object, got {}", path, vocabulary.kind());
  SpecialTokens tokens = read_special_tokens(folder);
  tokens.name_otherwise("eos_token", "<|endoftext|>");
  Json model, json;
  Json::Array added = merge_added_tokens({}, vocabulary, tokens);
  // GPT-2 puts nothing before a text; OPT's files request their beginning-of-text token.
  if (tokens.add_begin) json.set("post_processor", begin_template(added, tokens.begin, path));
  json.set("added_tokens", std::move(added));
  model.set("vocab", std::move(vocabulary));
  model.set("merges", read_merges(folder + "/merges.txt"));
  json.set("pre_tokenizer", byte_level(tokens.add_prefix_space.value_or(false)));
  json.set("decoder", byte_level(false));
  json.set("model", std::move(model));
  return make_hugging_face(json, path, tokens);
}

}  // namespace ds::text
