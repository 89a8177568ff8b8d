// Builds a vocabulary from the files of a tokenizer. Each reader fills tokens and kinds by id; the
// files beside the tokenizer then name special tokens and add flags.
//
// A tokenizer.json of sentencepiece's BPE has merges in place of scores. The piece that the first
// merge makes gets the score 0, the next new piece -1, and so on: llama.cpp then joins the same
// pairs first.
#include "checkpoint/gguf/tokenizer_import.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/gguf/sentencepiece_model.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "io/gguf_pre_tokenizers.h"
#include "io/gguf_values.h"

namespace ds {
namespace {

// The scores that llama.cpp's converter gives to unused and to added tokens.
constexpr double kUnusedScore = -10000, kAddedScore = -1000;
constexpr std::array<const char*, 7> kSpecials{"bos", "eos", "unk", "sep", "pad", "cls", "mask"};

bool is_true(const Json* value) { return value && value->is_bool() && value->boolean(); }

Json read_optional(const std::string& path) {
  return name_exists(path) ? read_json(path) : Json(Json::Object{});
}

// Returns whether llama.cpp treats an added token as a control token although the files do not call
// it special.
bool looks_special(std::string_view token) {
  for (std::string_view known : {"<pad>", "<mask>", "<2mass>", "[@BOS@]"}) {
    if (token == known) return true;
  }
  for (auto [begin, end] : {std::pair<std::string_view, std::string_view>{"<|", "|>"},
                            {"<\uff5c", "\uff5c>"},
                            {"<unused", ">"}}) {
    if (token.starts_with(begin) && token.ends_with(end) && token.size() > begin.size())
      return true;
  }
  return false;
}

class TokenizerImport {
 public:
  TokenizerImport(std::string folder, int64_t tokens) : folder_(std::move(folder)), count_(tokens) {
    beside_ = read_optional(path("tokenizer_config.json"));
    config_ = read_optional(path("config.json"));
  }

  GgufVocabulary import() {
    const std::string json = path("tokenizer.json"), model = path("tokenizer.model");
    Json tokenizer = read_optional(json);
    const Json* parts = tokenizer.find("model");
    const Json* type = parts ? parts->find("type") : nullptr;
    const bool bpe = type && type->is_string() && type->string() == "BPE";
    const bool fallback = parts && is_true(parts->find("byte_fallback"));
    if (bpe && !fallback) {
      take_byte_level(tokenizer);
    } else if (name_exists(model)) {
      take_sentencepiece(model);
    } else if (bpe) {
      take_piece_merges(tokenizer);
    } else if (name_exists(json)) {
      raise(DS_ERROR_UNSUPPORTED, "{}: a GGUF file holds a tokenizer of BPE, got {}", json,
            type ? type->dump() : "none");
    } else if (name_exists(path("vocab.json"))) {
      take_pair();
    } else {
      return out_;
    }
    add_added(tokenizer);
    name_special();
    read_flags(tokenizer);
    read_template();
    return std::move(out_);
  }

 private:
  std::string path(const char* name) const { return folder_ + "/" + name; }

  // Returns whether the vocabulary is one of sentencepiece.
  bool pieces() const { return out_.model == "llama"; }

  void begin(const char* model, double score) {
    out_.model = model;
    for (int64_t i = 0; i < count_; ++i) out_.tokens.push_back(fmt::format("[PAD{}]", i));
    out_.kinds.assign(out_.tokens.size(), TokenKind::unused);
    if (pieces()) out_.scores.assign(out_.tokens.size(), score);
  }

  size_t index(int64_t id, std::string_view token) const {
    if (id < 0 || id >= count_)
      raise(DS_ERROR_CONFIG,
            "{}: token '{}' of its tokenizer has id {}, but vocab_size of its config.json is {}",
            folder_, token, id, count_);
    return static_cast<size_t>(id);
  }

  void put(int64_t id, const std::string& token, TokenKind kind) {
    const size_t i = index(id, token);
    out_.tokens[i] = token;
    out_.kinds[i] = kind;
  }

  // Returns the pieces of a merge, which is a pair or, in old files, one text with a space.
  static std::pair<std::string, std::string> merge_parts(const Json& merge) {
    if (merge.is_array() && merge.array().size() == 2)
      return {merge.array()[0].string(), merge.array()[1].string()};
    const std::string& text = merge.string();
    const size_t space = text.find(' ');
    return {text.substr(0, space), space == text.npos ? "" : text.substr(space + 1)};
  }

  void take_byte_level(const Json& tokenizer) {
    begin("gpt2", 0);
    out_.pre = pre_tokenizer_name(tokenizer);
    for (const auto& [token, id] : tokenizer.at("model").at("vocab").object())
      put(id.integer(), token, TokenKind::normal);
    for (const Json& merge : tokenizer.at("model").at("merges").array()) {
      const auto [left, right] = merge_parts(merge);
      out_.merges.push_back(left + " " + right);
    }
  }

  // Reads vocab.json and merges.txt, whose first line may be a comment.
  void take_pair() {
    begin("gpt2", 0);
    out_.pre = "gpt-2";
    const Json vocabulary = read_json(path("vocab.json"));
    for (const auto& [token, id] : vocabulary.object()) put(id.integer(), token, TokenKind::normal);
    std::istringstream lines(read_text(path("merges.txt")));
    std::string line;
    while (std::getline(lines, line)) {
      if (line.ends_with('\r')) line.pop_back();
      if (line.empty() || line.starts_with("#version")) continue;
      out_.merges.push_back(line);
    }
  }

  void take_sentencepiece(const std::string& model) {
    SentencePieceModel pieces = read_sentencepiece_model(model);
    if (!pieces.is_bpe)
      raise(DS_ERROR_UNSUPPORTED,
            "{}: a GGUF file holds sentencepiece models of type BPE, which this is not", model);
    begin("llama", kUnusedScore);
    out_.pre = "default";
    for (size_t i = 0; i < pieces.pieces.size(); ++i) {
      put(static_cast<int64_t>(i), pieces.pieces[i], pieces.kinds[i]);
      out_.scores[i] = pieces.scores[i];
    }
    if (!pieces.add_dummy_prefix) out_.add_space = false;
    out_.add_bos = true;
    out_.add_eos = false;
  }

  void take_piece_merges(const Json& tokenizer) {
    const Json& model = tokenizer.at("model");
    begin("llama", kUnusedScore);
    out_.pre = "default";
    std::unordered_map<std::string_view, size_t> ids;
    for (const auto& [token, id] : model.at("vocab").object()) {
      const bool byte = token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
      put(id.integer(), token, byte ? TokenKind::byte : TokenKind::normal);
      const size_t i = index(id.integer(), token);
      ids.emplace(token, i);
      out_.scores[i] = byte ? 0 : kAddedScore;
    }
    std::vector<bool> scored(out_.tokens.size());
    double next = 0;
    for (const Json& merge : model.at("merges").array()) {
      const auto [left, right] = merge_parts(merge);
      const auto found = ids.find(left + right);
      if (found == ids.end() || scored[found->second]) continue;
      scored[found->second] = true;
      out_.scores[found->second] = next--;
    }
    // Single characters are never the result of a merge. Their scores follow those of the others.
    for (size_t i = 0; i < scored.size(); ++i) {
      if (!scored[i] && out_.kinds[i] == TokenKind::normal) out_.scores[i] = next--;
    }
    const Json* unknown = model.find("unk_token");
    if (!unknown || !unknown->is_string()) return;
    if (const auto found = ids.find(unknown->string()); found != ids.end()) {
      out_.kinds[found->second] = TokenKind::unknown;
      out_.scores[found->second] = 0;
      unknown_ = static_cast<int64_t>(found->second);
    }
  }

  void add_token(int64_t id, std::string token, bool special) {
    if (id == unknown_) return;
    special = special || looks_special(token);
    // Spaces in a token of the user are spelled as spaces, not by sentencepiece's sign.
    constexpr std::string_view sign = "\u2581";
    for (size_t at; !special && (at = token.find(sign)) != token.npos;)
      token.replace(at, sign.size(), " ");
    put(id, token, special ? TokenKind::control : TokenKind::user_defined);
    if (!out_.scores.empty()) out_.scores[static_cast<size_t>(id)] = kAddedScore;
  }

  void add_added(const Json& tokenizer) {
    if (const Json* added = tokenizer.find("added_tokens"); added && added->is_array()) {
      for (const Json& token : added->array())
        add_token(token.at("id").integer(), token.at("content").string(),
                  is_true(token.find("special")));
    }
    if (const Json* added = beside_.find("added_tokens_decoder"); added && added->is_object()) {
      for (const auto& [id, token] : added->object())
        add_token(Json::parse(id, "added_tokens_decoder").integer(), token.at("content").string(),
                  is_true(token.find("special")));
    }
  }

  // Returns the spelling that tokenizer_config.json gives a special token, or "".
  std::string spelling(const std::string& name) const {
    const Json* value = beside_.find(name + "_token");
    if (value && value->is_object()) value = value->find("content");
    return value && value->is_string() ? value->string() : "";
  }

  void name_special() {
    for (const char* name : kSpecials) {
      const std::string token = spelling(name);
      const auto found = std::ranges::find(out_.tokens, token);
      const Json* id = config_.find(std::string(name) + "_token_id");
      if (!token.empty() && found != out_.tokens.end()) {
        out_.special.emplace_back(name, found - out_.tokens.begin());
      } else if (id && id->is_integer() && id->integer() >= 0 && id->integer() < count_) {
        out_.special.emplace_back(name, id->integer());
      } else if (std::string_view(name) == "unk" && unknown_ >= 0) {
        out_.special.emplace_back(name, unknown_);
      }
    }
  }

  // Reads whether bos and eos are put around a text: the post processor knows it, otherwise
  // tokenizer_config.json.
  void read_flags(const Json& tokenizer) {
    if (const Json* value = beside_.find("add_bos_token"); value && value->is_bool())
      out_.add_bos = value->boolean();
    if (const Json* value = beside_.find("add_eos_token"); value && value->is_bool())
      out_.add_eos = value->boolean();
    const Json* post = tokenizer.find("post_processor");
    if (post && post->is_object()) read_processor(*post);
    if (const Json* form = tokenizer.find("normalizer"); pieces() && form) {
      check_steps(*form, "normalizer");
      check_steps(tokenizer.at("pre_tokenizer"), "pre_tokenizer");
      const std::string cut = tokenizer.at("pre_tokenizer").dump();
      auto has = [&](const char* text) { return cut.find(text) != std::string::npos; };
      out_.add_space = form->dump().find("Prepend") != std::string::npos || has("\"first\"") ||
                       has("\"always\"");
    }
  }

  // Throws for a step that llama.cpp does not take with the pieces of sentencepiece.
  void check_steps(const Json& step, const char* member) const {
    if (!step.is_object()) return;
    const std::string& type = step.at("type").string();
    for (const char* list : {"normalizers", "pretokenizers"}) {
      const Json* parts = step.find(list);
      for (size_t i = 0; parts && i < parts->array().size(); ++i)
        check_steps(parts->array()[i], member);
    }
    for (const char* known : {"Sequence", "Prepend", "Replace", "Metaspace", "Split"}) {
      if (type == known) return;
    }
    raise(DS_ERROR_UNSUPPORTED, "{}: {} '{}' of its tokenizer cannot be expressed in a GGUF file",
          folder_, member, type);
  }

  void read_processor(const Json& processor) {
    const std::string& type = processor.at("type").string();
    if (type == "Sequence") {
      for (const Json& part : processor.at("processors").array()) read_processor(part);
    } else if (type == "ByteLevel") {
      out_.add_bos = out_.add_bos.value_or(false);
      out_.add_eos = out_.add_eos.value_or(false);
    } else if (type == "TemplateProcessing") {
      read_template_processing(processor.at("single").array());
    }
  }

  // Reads the template of a text: the tokens before and after the text, if there are any.
  void read_template_processing(const Json::Array& single) {
    const bool before = single.size() > 1 && single.front().find("SpecialToken"),
               after = single.size() > 1 && single.back().find("SpecialToken");
    // Without a flag, llama.cpp begins a text of pieces with bos.
    if (before || pieces()) out_.add_bos = before;
    if (after) out_.add_eos = true;
    if (before) name_frame("bos", single.front());
    if (after) name_frame("eos", single.back());
  }

  // Names the token that the post processor puts before or after a text, unless another file has
  // named one.
  void name_frame(const char* name, const Json& part) {
    if (out_.find_special(name)) return;
    const std::string& token = part.at("SpecialToken").at("id").string();
    const auto found = std::ranges::find(out_.tokens, token);
    if (found != out_.tokens.end()) out_.special.emplace_back(name, found - out_.tokens.begin());
  }

  // Reads the chat template: a text, or a list of templates by name, or a file.
  void read_template() {
    const Json* value = beside_.find("chat_template");
    if (value && value->is_string()) out_.chat_template = value->string();
    for (size_t i = 0; value && value->is_array() && i < value->array().size(); ++i) {
      const Json& item = value->array()[i];
      if (item.at("name").string() == "default") out_.chat_template = item.at("template").string();
    }
    if (value == nullptr && name_exists(path("chat_template.jinja")))
      out_.chat_template = read_text(path("chat_template.jinja"));
  }

  std::string folder_;
  int64_t count_;
  Json beside_, config_;
  GgufVocabulary out_;
  // The id of the token that stands for unknown characters, or -1.
  int64_t unknown_ = -1;
};

}  // namespace

GgufVocabulary import_tokenizer(const std::string& folder, int64_t tokens) {
  return naming_file(folder, [&] { return TokenizerImport(folder, tokens).import(); });
}

}  // namespace ds
