// Reads vocab.txt, the file of BERT with a piece on each line, by building the equivalent
// tokenizer.json of WordPiece.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/utf8.h"
#include "io/file_kind.h"
#include "text/tokenizer.h"
#include "text/tokenizers/file_text.h"
#include "text/tokenizers/hugging_face.h"
#include "text/tokenizers/kinds.h"
#include "text/tokenizers/special_tokens.h"

namespace ds::text {
namespace {

Json typed(const char* type) {
  Json out;
  out.set("type", type);
  return out;
}

// The id of a piece is the index of its line. Among equal lines the last one is used.
Json read_pieces(const std::string& path) {
  std::string text = read_text(path);
  if (!is_utf8(text)) raise(DS_ERROR_CORRUPT, "{}: must be UTF-8", path);
  std::istringstream lines(std::move(text));
  std::unordered_map<std::string, int64_t> ids;
  int64_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    if (line.ends_with('\r')) line.pop_back();
    ids[line] = count;
  }
  Json::Object pieces;
  pieces.reserve(ids.size());
  for (const auto& [piece, id] : ids) pieces.emplace_back(piece, id);
  return Json(std::move(pieces));
}

}  // namespace

// Tokens that the files beside vocab.txt do not name get BERT's usual spellings.
std::unique_ptr<const Tokenizer> open_bert_vocabulary(const std::string& folder) {
  std::string path = folder + "/vocab.txt";
  Json pieces = read_pieces(path);
  SpecialTokens tokens = read_special_tokens(folder);
  for (auto [name, usual] : {std::pair{"pad_token", "[PAD]"},
                             {"unk_token", "[UNK]"},
                             {"cls_token", "[CLS]"},
                             {"sep_token", "[SEP]"},
                             {"mask_token", "[MASK]"}}) {
    tokens.name_otherwise(name, usual);
  }
  Json::Array added = merge_added_tokens({}, pieces, tokens);
  std::map<std::string, Json> ids;
  for (const Json& token : added) ids[token.at("content").string()] = token.at("id");
  Json normalizer = typed("BertNormalizer"), around = typed("BertProcessing"),
       model = typed("WordPiece");
  // Flags that the files do not set are those of BERT's uncased models. Accents are stripped with
  // lower case unless a file says otherwise.
  normalizer.set("lowercase", tokens.do_lower_case.value_or(true));
  normalizer.set("handle_chinese_chars", tokens.tokenize_chinese_chars.value_or(true));
  if (tokens.strip_accents) normalizer.set("strip_accents", *tokens.strip_accents);
  for (auto [key, content] : {std::pair{"sep", tokens.sep}, {"cls", tokens.cls}}) {
    around.set(key, Json::Array{content, ids.at(content)});
  }
  model.set("unk_token", tokens.unknown);
  model.set("vocab", std::move(pieces));
  Json json;
  json.set("added_tokens", std::move(added));
  json.set("normalizer", std::move(normalizer));
  json.set("pre_tokenizer", typed("BertPreTokenizer"));
  json.set("post_processor", std::move(around));
  json.set("decoder", typed("WordPiece"));
  json.set("model", std::move(model));
  return make_hugging_face(json, path, tokens);
}

}  // namespace ds::text
