// Makes a tokenizer.json of a vocabulary. For "llama", the scores become merges: every pair of
// pieces whose joined text is a piece is a merge, and those with a higher score of the result come
// first.
#include "io/gguf_tokenizer.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/utf8.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/gguf_pre_tokenizers.h"
#include "io/gguf_values.h"

namespace ds {
namespace {

constexpr std::string_view kTokenizerJson = kGgufTokenizerFiles[0];
constexpr const char* kSpace = "\u2581";
// In bytes.
constexpr size_t kLongestPiece = 1024;

// A pair of pieces that are joined, and what orders the merges.
struct PieceMerge {
  double score;
  int64_t result, left, right;
};

bool is_added(TokenKind kind) {
  return kind == TokenKind::control || kind == TokenKind::user_defined ||
         kind == TokenKind::unknown;
}

// Returns the merges of a vocabulary with scores. Every split of a piece is tried, so pieces longer
// than kLongestPiece, which no published model has, are left out.
Json::Array merges_by_score(const GgufVocabulary& vocabulary) {
  std::unordered_map<std::string_view, int64_t> ids;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.kinds[i] == TokenKind::normal)
      ids.emplace(vocabulary.tokens[i], static_cast<int64_t>(i));
  }
  std::vector<PieceMerge> merges;
  for (const auto& [text, result] : ids) {
    if (text.size() > kLongestPiece) continue;
    for (size_t at = 1; at < text.size(); ++at) {
      const auto left = ids.find(text.substr(0, at)), right = ids.find(text.substr(at));
      if (left == ids.end() || right == ids.end()) continue;
      merges.push_back(
          {vocabulary.scores[static_cast<size_t>(result)], result, left->second, right->second});
    }
  }
  std::ranges::sort(merges, {}, [](const PieceMerge& m) {
    return std::tuple(-m.score, m.result, m.left, m.right);
  });
  Json::Array out;
  for (const PieceMerge& merge : merges)
    out.push_back(Json::Array{vocabulary.tokens[static_cast<size_t>(merge.left)],
                              vocabulary.tokens[static_cast<size_t>(merge.right)]});
  return out;
}

Json::Array merges_in_order(const GgufVocabulary& vocabulary) {
  Json::Array out;
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.find(' ', 1);
    if (space == merge.npos || merge.find(' ', space + 1) != merge.npos)
      raise(DS_ERROR_CORRUPT, "key 'tokenizer.ggml.merges' must have pairs, got '{}'", merge);
    out.push_back(Json::Array{merge.substr(0, space), merge.substr(space + 1)});
  }
  return out;
}

class TokenizerExport {
 public:
  explicit TokenizerExport(const GgufVocabulary& vocabulary)
      : vocabulary_(vocabulary), pieces_(vocabulary.model == "llama") {
    if (!pieces_) pre_ = pre_tokenizer_of(vocabulary.pre);
  }

  Json tokenizer() const {
    Json out = Json::Object{{"version", "1.0"}, {"truncation", Json()}, {"padding", Json()}};
    out.set("added_tokens", added());
    out.set("normalizer", pieces_ ? piece_normalizer() : pre_.normalizer);
    out.set("pre_tokenizer", pieces_ ? Json() : pre_.pre_tokenizer);
    out.set("post_processor", post_processor());
    out.set("decoder", pieces_ ? piece_decoder() : byte_level());
    out.set("model", model());
    return out;
  }

  Json config() const {
    Json out = Json::Object{{"tokenizer_class", "PreTrainedTokenizerFast"},
                            {"clean_up_tokenization_spaces", false}};
    for (const auto& [name, id] : vocabulary_.special)
      out.set(name + "_token", vocabulary_.tokens[static_cast<size_t>(id)]);
    if (!vocabulary_.chat_template.empty()) out.set("chat_template", vocabulary_.chat_template);
    return out;
  }

 private:
  static Json byte_level() {
    return Json::Object{{"type", "ByteLevel"},
                        {"add_prefix_space", true},
                        {"trim_offsets", true},
                        {"use_regex", true}};
  }
  bool add_space() const { return vocabulary_.add_space.value_or(true); }

  Json::Array added() const {
    Json::Array out;
    for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      const TokenKind kind = vocabulary_.kinds[i];
      if (!is_added(kind)) continue;
      out.push_back(Json::Object{{"id", static_cast<int64_t>(i)},
                                 {"content", vocabulary_.tokens[i]},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", kind != TokenKind::user_defined}});
    }
    return out;
  }

  static Json replace(const char* pattern, const char* content) {
    return Json::Object{
        {"type", "Replace"}, {"pattern", Json::Object{{"String", pattern}}}, {"content", content}};
  }

  Json piece_normalizer() const {
    Json::Array steps;
    if (add_space()) steps.push_back(Json::Object{{"type", "Prepend"}, {"prepend", kSpace}});
    steps.push_back(replace(" ", kSpace));
    return Json::Object{{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  }

  Json piece_decoder() const {
    Json::Array steps{replace(kSpace, " "), Json::Object{{"type", "ByteFallback"}},
                      Json::Object{{"type", "Fuse"}}};
    if (add_space())
      steps.push_back(Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    return Json::Object{{"type", "Sequence"}, {"decoders", std::move(steps)}};
  }

  // Returns the id of the token bos or eos if a text gets it, as llama.cpp decides.
  std::optional<int64_t> framing(const char* name, std::optional<bool> given, bool usual) const {
    return given.value_or(usual) ? vocabulary_.find_special(name) : std::nullopt;
  }

  Json post_processor() const {
    const auto bos = framing("bos", vocabulary_.add_bos, pieces_ || pre_.add_bos);
    const auto eos = framing("eos", vocabulary_.add_eos, false);
    if (!bos && !eos) return pieces_ ? Json() : byte_level();
    Json::Array single, pair;
    Json special;
    auto put = [&](std::optional<int64_t> id) {
      if (!id) return;
      const std::string& token = vocabulary_.tokens[static_cast<size_t>(*id)];
      const Json part = Json::Object{{"SpecialToken", Json::Object{{"id", token}, {"type_id", 0}}}};
      single.push_back(part);
      pair.push_back(part);
      special.set(
          token,
          Json::Object{{"id", token}, {"ids", Json::Array{*id}}, {"tokens", Json::Array{token}}});
    };
    auto sequence = [](const char* name) {
      return Json(Json::Object{{"Sequence", Json::Object{{"id", name}, {"type_id", 0}}}});
    };
    put(bos);
    single.push_back(sequence("A"));
    pair.push_back(sequence("A"));
    pair.push_back(sequence("B"));
    put(eos);
    return Json::Object{{"type", "TemplateProcessing"},
                        {"single", std::move(single)},
                        {"pair", std::move(pair)},
                        {"special_tokens", std::move(special)}};
  }

  Json model() const {
    Json::Object vocab;
    for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      if (vocabulary_.kinds[i] != TokenKind::unused)
        vocab.emplace_back(vocabulary_.tokens[i], static_cast<int64_t>(i));
    }
    // Files need not name the unknown piece; it then is the one of this kind.
    const auto unknown = std::ranges::find(vocabulary_.kinds, TokenKind::unknown);
    Json unknown_token;
    if (pieces_ && unknown != vocabulary_.kinds.end())
      unknown_token = vocabulary_.tokens[static_cast<size_t>(unknown - vocabulary_.kinds.begin())];
    return Json::Object{
        {"type", "BPE"},
        {"dropout", Json()},
        {"unk_token", unknown_token},
        {"continuing_subword_prefix", Json()},
        {"end_of_word_suffix", Json()},
        {"fuse_unk", pieces_},
        {"byte_fallback", pieces_},
        {"ignore_merges", pre_.ignore_merges},
        {"vocab", std::move(vocab)},
        {"merges", pieces_ ? merges_by_score(vocabulary_) : merges_in_order(vocabulary_)}};
  }

  const GgufVocabulary& vocabulary_;
  bool pieces_;
  PreTokenizer pre_;
};

// Throws if two tokens that the files spell have one spelling.
void check_spellings(const GgufVocabulary& vocabulary) {
  std::unordered_map<std::string_view, size_t> seen;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.kinds[i] == TokenKind::unused) continue;
    const auto [at, is_new] = seen.emplace(vocabulary.tokens[i], i);
    if (!is_new)
      raise(DS_ERROR_UNSUPPORTED, "tokens {} and {} have the same spelling '{}'", at->second, i,
            vocabulary.tokens[i]);
  }
}

// Returns the GGUF file that contains the tokenizer's file `path`, or "".
std::string gguf_around(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string above = slash == path.npos ? "" : path.substr(0, slash);
  return !above.empty() && is_gguf(above) ? above : "";
}

}  // namespace

std::string gguf_tokenizer_text(const GgufVocabulary& vocabulary, std::string_view name) {
  const TokenizerExport out(vocabulary);
  if (name != kTokenizerJson) return out.config().dump(2) + "\n";
  check_spellings(vocabulary);
  return out.tokenizer().dump(1) + "\n";
}

bool has_tokenizer_file(const std::string& path) {
  const std::string gguf = gguf_around(path);
  if (gguf.empty()) return name_exists(path);
  const std::string_view name = std::string_view(path).substr(gguf.size() + 1);
  return std::ranges::find(kGgufTokenizerFiles, name) != std::end(kGgufTokenizerFiles) &&
         read_vocabulary(gguf).model != "none";
}

std::string read_tokenizer_file(const std::string& path) {
  const std::string gguf = gguf_around(path);
  if (gguf.empty()) return read_file(path);
  const GgufVocabulary vocabulary = read_vocabulary(gguf);
  return naming_file(gguf,
                     [&] { return gguf_tokenizer_text(vocabulary, path.substr(gguf.size() + 1)); });
}

}  // namespace ds
