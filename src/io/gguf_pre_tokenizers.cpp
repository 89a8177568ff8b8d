// llama.cpp has a name for each way of splitting a text into words before the merges. A
// tokenizer.json has the patterns themselves. Parts are compared by a summary, which leaves out
// members that do not change the words of a text.
#include "io/gguf_pre_tokenizers.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/error.h"

namespace ds {
namespace {

constexpr std::string_view kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// A name, and the parts that it stands for: whether the text is normalized by NFC, the pattern of
// the words or "" for GPT-2's own, and whether each digit is a word.
struct NamedPre {
  std::string_view name;
  bool nfc;
  std::string_view words;
  bool digits;
  bool ignore_merges, add_bos;
};
// Several names stand for the same parts. The first of them is written.
constexpr std::array<NamedPre, 11> kNamedPres{
    {{"gpt-2", false, "", false, false, false},
     {"llama-bpe", false, kLlama3Words, false, true, true},
     {"qwen2", true, kQwen2Words, false, false, false},
     {"olmo", true, "", false, false, false},
     {"smollm", false, "", true, false, false},
     {"starcoder", false, "", true, false, false},
     {"dbrx", false, kLlama3Words, false, false, false},
     {"llama3", false, kLlama3Words, false, true, true},
     {"llama-v3", false, kLlama3Words, false, true, true},
     {"falcon3", false, kLlama3Words, false, true, true},
     {"deepseek-r1-qwen", true, kQwen2Words, false, false, false}}};

Json byte_level(bool use_regex) {
  return Json::Object{{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", true},
                      {"use_regex", use_regex}};
}

Json json_of(const NamedPre& pre) {
  if (pre.words.empty() && !pre.digits) return byte_level(true);
  Json first = pre.digits
                   ? Json(Json::Object{{"type", "Digits"}, {"individual_digits", true}})
                   : Json(Json::Object{{"type", "Split"},
                                       {"pattern", Json::Object{{"Regex", std::string(pre.words)}}},
                                       {"behavior", "Isolated"},
                                       {"invert", false}});
  return Json::Object{{"type", "Sequence"},
                      {"pretokenizers", Json::Array{std::move(first), byte_level(pre.digits)}}};
}

bool is_set(const Json& object, std::string_view key, bool otherwise) {
  const Json* value = object.find(key);
  return value && value->is_bool() ? value->boolean() : otherwise;
}

// Returns a summary of one part of the pre-tokenizer, or its JSON text if it is of another kind.
std::string summary_of_step(const Json& step) {
  const std::string& type = step.at("type").string();
  if (type == "ByteLevel" && !is_set(step, "add_prefix_space", true))
    return is_set(step, "use_regex", true) ? "bytes and words;" : "bytes;";
  if (type == "Digits" && is_set(step, "individual_digits", false)) return "digits;";
  const Json* pattern = step.find("pattern");
  const Json* regex = pattern && pattern->is_object() ? pattern->find("Regex") : nullptr;
  const Json* behavior = step.find("behavior");
  if (type == "Split" && regex && regex->is_string() && behavior && behavior->is_string() &&
      behavior->string() == "Isolated" && !is_set(step, "invert", false))
    return "split " + regex->string() + ";";
  return step.dump();
}

std::string summary_of(const Json* part) {
  if (part == nullptr || part->is_null()) return "";
  const std::string& type = part->at("type").string();
  if (type != "Sequence") return summary_of_step(*part);
  const Json* steps = part->find("pretokenizers");
  if (steps == nullptr) steps = &part->at("normalizers");
  std::string out;
  for (const Json& step : steps->array()) out += summary_of_step(step);
  return out;
}

std::string known_names() {
  std::string out;
  for (const NamedPre& pre : kNamedPres) out += (out.empty() ? "" : ", ") + std::string(pre.name);
  return out;
}

}  // namespace

PreTokenizer pre_tokenizer_of(const std::string& name) {
  for (const NamedPre& pre : kNamedPres) {
    if (pre.name != name) continue;
    return {pre.nfc ? Json(Json::Object{{"type", "NFC"}}) : Json(), json_of(pre), pre.ignore_merges,
            pre.add_bos};
  }
  raise(DS_ERROR_UNSUPPORTED, "key 'tokenizer.ggml.pre' must be one of {}, got '{}'", known_names(),
        name);
}

std::string pre_tokenizer_name(const Json& tokenizer) {
  const std::string words = summary_of(tokenizer.find("pre_tokenizer"));
  const std::string form = summary_of(tokenizer.find("normalizer"));
  const bool ignore = is_set(tokenizer.at("model"), "ignore_merges", false);
  const std::string nfc = summary_of_step(Json::Object{{"type", "NFC"}});
  for (const NamedPre& pre : kNamedPres) {
    const Json parts = json_of(pre);
    if (summary_of(&parts) == words && (pre.nfc ? nfc : "") == form && pre.ignore_merges == ignore)
      return std::string(pre.name);
  }
  raise(DS_ERROR_UNSUPPORTED,
        "llama.cpp's pre-tokenizers {} differ from that of tokenizer.json: normalizer '{}', words "
        "'{}', ignore_merges {}",
        known_names(), form, words, ignore);
}

}  // namespace ds
