#include "io/gguf_vocabulary.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "core/base/error.h"
#include "io/gguf_values.h"

namespace ds {
namespace {

const std::string kPrefix = "tokenizer.ggml.";
const std::string kTemplate = "tokenizer.chat_template";

// The names of special tokens in config.json and in the metadata. The spelling "seperator" is the
// format's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kSpecialNames{
    {{"bos", "bos"},
     {"eos", "eos"},
     {"unk", "unknown"},
     {"sep", "seperator"},
     {"pad", "padding"},
     {"cls", "cls"},
     {"mask", "mask"}}};

std::string special_key(std::string_view name) { return kPrefix + std::string(name) + "_token_id"; }

template <typename List>
void require_length(const std::string& key, const List& list, size_t wanted) {
  if (list.size() == wanted) return;
  raise(DS_ERROR_CORRUPT, "key '{}{}' must have {} elements, one for each token, got {}", kPrefix,
        key, wanted, list.size());
}

void read_kinds(const GgufHeader& header, GgufVocabulary& out) {
  const std::vector<int64_t> kinds = gguf_integers(header, kPrefix + "token_type");
  if (kinds.empty()) {
    out.kinds.assign(out.tokens.size(), TokenKind::normal);
    return;
  }
  require_length("token_type", kinds, out.tokens.size());
  for (int64_t kind : kinds) {
    if (kind < 1 || kind > 6)
      raise(DS_ERROR_CORRUPT, "key '{}token_type' must have kinds from 1 to 6, got {}", kPrefix,
            kind);
    out.kinds.push_back(static_cast<TokenKind>(kind));
  }
}

// Returns the id that sentencepiece gives a special token that the file does not name, as
// llama.cpp assumes, or nothing.
std::optional<int64_t> usual_id(const GgufVocabulary& vocabulary, std::string_view name) {
  const int64_t id = name == "unk" ? 0 : name == "bos" ? 1 : name == "eos" ? 2 : -1;
  if (vocabulary.model != "llama" || id < 0 || id >= std::ssize(vocabulary.kinds)) return {};
  const TokenKind wanted = name == "unk" ? TokenKind::unknown : TokenKind::control;
  return vocabulary.kinds[static_cast<size_t>(id)] == wanted ? std::optional(id) : std::nullopt;
}

template <typename Element>
GgufValue list_of(GgufKind kind, std::vector<Element> elements) {
  return {kind, true, std::move(elements)};
}

}  // namespace

std::optional<int64_t> GgufVocabulary::find_special(const std::string& name) const {
  for (const auto& [known, id] : special) {
    if (known == name) return id;
  }
  return std::nullopt;
}

GgufVocabulary read_vocabulary(const GgufHeader& header) {
  GgufVocabulary out;
  out.model = gguf_text(header, kPrefix + "model").value_or("none");
  if (out.model == "no_vocab") out.model = "none";
  if (out.model == "none") return out;
  if (out.model != "gpt2" && out.model != "llama")
    raise(DS_ERROR_UNSUPPORTED, "key '{}model' must be gpt2, llama or none, got '{}'", kPrefix,
          out.model);
  out.pre = gguf_text(header, kPrefix + "pre").value_or("");
  out.tokens = gguf_texts(header, kPrefix + "tokens");
  if (out.tokens.empty()) raise(DS_ERROR_CORRUPT, "key '{}tokens' is missing", kPrefix);
  read_kinds(header, out);
  out.scores = gguf_numbers(header, kPrefix + "scores");
  if (out.model == "llama") require_length("scores", out.scores, out.tokens.size());
  out.merges = gguf_texts(header, kPrefix + "merges");
  for (const auto& [name, spelling] : kSpecialNames) {
    const std::string key = special_key(spelling);
    std::optional<int64_t> id = gguf_integer(header, key);
    if (!id) id = usual_id(out, name);
    // -1 and its unsigned forms mean that there is no such token.
    if (!id || *id == -1 || *id == UINT32_MAX) continue;
    out.special.emplace_back(name, checked_gguf_integer(key, *id, 0, std::ssize(out.tokens) - 1));
  }
  out.add_bos = gguf_flag(header, kPrefix + "add_bos_token");
  out.add_eos = gguf_flag(header, kPrefix + "add_eos_token");
  out.add_space = gguf_flag(header, kPrefix + "add_space_prefix");
  out.chat_template = gguf_text(header, kTemplate).value_or("");
  return out;
}

GgufVocabulary read_vocabulary(const std::string& path) {
  const GgufHeader header = read_gguf_header(path);
  return naming_file(path, [&] { return read_vocabulary(header); });
}

void add_vocabulary(const GgufVocabulary& vocabulary, GgufMetadata& metadata) {
  auto add = [&](const std::string& key, GgufValue value) {
    metadata.emplace_back(kPrefix + key, std::move(value));
  };
  add("model", GgufValue::text(vocabulary.model));
  if (vocabulary.model == "none") return;
  add("pre", GgufValue::text(vocabulary.pre));
  add("tokens", list_of(GgufKind::text, vocabulary.tokens));
  if (vocabulary.model == "llama") add("scores", list_of(GgufKind::f32, vocabulary.scores));
  std::vector<int64_t> kinds;
  for (TokenKind kind : vocabulary.kinds) kinds.push_back(static_cast<int64_t>(kind));
  add("token_type", list_of(GgufKind::i32, std::move(kinds)));
  if (!vocabulary.merges.empty()) add("merges", list_of(GgufKind::text, vocabulary.merges));
  for (const auto& [name, spelling] : kSpecialNames) {
    if (auto id = vocabulary.find_special(std::string(name)))
      metadata.emplace_back(special_key(spelling), GgufValue::u32(*id));
  }
  if (vocabulary.add_bos) add("add_bos_token", GgufValue::flag(*vocabulary.add_bos));
  if (vocabulary.add_eos) add("add_eos_token", GgufValue::flag(*vocabulary.add_eos));
  if (vocabulary.add_space) add("add_space_prefix", GgufValue::flag(*vocabulary.add_space));
  if (!vocabulary.chat_template.empty())
    metadata.emplace_back(kTemplate, GgufValue::text(vocabulary.chat_template));
}

}  // namespace ds
