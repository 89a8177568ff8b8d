#include "data/tokenizers/hugging_face.h"

#include <fmt/core.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/utf8.h"
#include "data/tokenizers/added_tokens.h"
#include "data/tokenizers/decoder.h"
#include "data/tokenizers/file_text.h"
#include "data/tokenizers/files_beside.h"
#include "data/tokenizers/kinds.h"
#include "data/tokenizers/normalizer.h"
#include "data/tokenizers/pre_tokenizer.h"
#include "data/tokenizers/section.h"
#include "data/tokenizers/template.h"
#include "data/tokenizers/traced_text.h"
#include "data/tokenizers/word_model.h"

namespace ds {
namespace {

class HuggingFace : public Tokenizer {
 public:
  HuggingFace(Section& file, std::string path, const SpecialTokens& named)
      : name_(std::move(path)),
        normalizer_(read_normalizer(file.find("normalizer"), file.path("normalizer"))),
        pre_tokenizer_(read_pre_tokenizer(file.find("pre_tokenizer"), file.path("pre_tokenizer"))),
        model_(read_word_model(file, pre_tokenizer_.spells_bytes)),
        decoder_(read_decoder(file.find("decoder"), file.path("decoder"))),
        template_(read_template(file.find("post_processor"), file.path("post_processor"))) {
    file.skip("version");
    // Transformers turns both off unless its caller asks for them.
    for (const char* key : {"truncation", "padding"}) file.skip(key);
    bool fallback = has_byte_fallback(file.find("decoder"));
    for (const auto& [piece, id] : model_->vocabulary()) {
      spelling(id).text = piece;
      spelling(id).byte = fallback && fallback_byte(piece);
    }
    if (file.find("added_tokens")) read_added_tokens(file);
    file.done();
    for (int32_t id : template_.before) check_template(file, id);
    for (int32_t id : template_.after) check_template(file, id);
    names_ = named.named;
    if (!named.end.empty()) end_of_text_ = id_of(named.end);
    find_mask_token(named.mask);
  }

  const std::string& name() const override { return name_; }
  int64_t vocab() const override { return static_cast<int64_t>(spellings_.size()); }
  std::optional<int32_t> end_of_text() const override { return end_of_text_; }
  std::optional<int32_t> mask_token() const override { return mask_token_; }
  Names names() const override { return names_; }
  Frame frame() const override { return {template_.before, template_.after}; }
  bool is_special(int32_t token) const override {
    return token == end_of_text_ || token == mask_token_ ||
           (token >= 0 && token < vocab() && spellings_[static_cast<size_t>(token)].special);
  }
  bool joins_next(int32_t token) const override {
    return token >= 0 && token < vocab() && spellings_[static_cast<size_t>(token)].byte;
  }

  std::vector<int32_t> encode(std::string_view text, bool special) const override {
    std::vector<int32_t> out;
    if (special) out = template_.before;
    encode_text(text, out, nullptr);
    if (special) out.insert(out.end(), template_.after.begin(), template_.after.end());
    return out;
  }

  Traced encode_traced(std::string_view text) const override {
    Traced out;
    encode_text(text, out.tokens, &out.sources);
    return out;
  }

  std::string decode(std::span<const int32_t> tokens, bool skip_special) const override {
    std::vector<std::string> texts;
    texts.reserve(tokens.size());
    for (int32_t token : tokens) {
      const Spelling* found =
          token >= 0 && token < vocab() ? &spellings_[static_cast<size_t>(token)] : nullptr;
      if (!found || found->hole) {
        texts.emplace_back("\xef\xbf\xbd");
      } else if (!(skip_special && found->special)) {
        texts.push_back(found->text);
      }
    }
    std::string text;
    for (const std::string& part : decoder_(std::move(texts))) text += part;
    return text;
  }

 private:
  struct Spelling {
    std::string text;
    bool special = false, hole = true, byte = false;  // byte: one of byte fallback
  };

  void encode_text(std::string_view text, std::vector<int32_t>& out,
                   std::vector<Range>* sources) const {
    std::string repaired;
    if (!is_utf8(text)) text = repaired = repair_utf8(text);
    for (const auto& part : as_given_.find(text)) {
      if (part.id < 0) {
        encode_part(text, part.range, out, sources);
        continue;
      }
      out.push_back(part.id);
      if (sources) sources->push_back(part.range);
    }
  }

  // A text without added tokens as given: normalized, cut at the others, and what is left through
  // the model.
  void encode_part(std::string_view text, Range range, std::vector<int32_t>& out,
                   std::vector<Range>* sources) const {
    TracedText normal = TracedText::of(text.substr(range.begin, range.end - range.begin),
                                       range.begin, sources != nullptr);
    if (normalizer_) normal = normalizer_->apply(std::move(normal));
    for (const auto& part : in_normalized_.find(normal.text)) {
      if (part.id >= 0) {
        out.push_back(part.id);
        if (sources) sources->push_back(normal.source(part.range));
      } else {
        TracedText rest = TracedText::empty_like(normal);
        rest.copy(normal, part.range);
        bool at_start = range.begin == 0 && part.range.begin == 0;
        model_->encode(pre_tokenizer_.apply(std::move(rest), at_start), out, sources);
      }
    }
  }

  Spelling& spelling(int32_t id) {
    auto index = static_cast<size_t>(id);
    if (index >= spellings_.size()) spellings_.resize(index + 1);
    spellings_[index].hole = false;
    return spellings_[index];
  }

  void read_added_tokens(Section& file) {
    const int64_t largest =
        largest_id(model_->vocabulary().size() + file.array("added_tokens").size());
    std::map<int32_t, std::string> seen;
    for (const Json& one : file.array("added_tokens")) {
      Section section(one, fmt::format("{}[{}]", file.path("added_tokens"), seen.size()));
      AddedToken token;
      token.id = static_cast<int32_t>(section.integer("id", 0, largest));
      token.content = section.text("content");
      token.special = section.flag("special", false);
      token.normalized = section.flag("normalized", !token.special);
      token.single_word = section.flag("single_word", false);
      token.lstrip = section.flag("lstrip", false);
      token.rstrip = section.flag("rstrip", false);
      section.done();
      auto [before, fresh] = seen.emplace(token.id, token.content);
      if (!fresh) {
        raise(DS_ERROR_CORRUPT, "{}: id {} is given to '{}' and to '{}'", section.where(), token.id,
              before->second, token.content);
      }
      add(token, section.where());
    }
    as_given_.finish();
    in_normalized_.finish();
  }

  void add(const AddedToken& token, const std::string& where) {
    auto index = static_cast<size_t>(token.id);
    if (index < spellings_.size() && !spellings_[index].hole &&
        spellings_[index].text != token.content) {
      raise(DS_ERROR_CORRUPT, "{}: id {} is given to '{}' and to '{}' of the model", where,
            token.id, token.content, spellings_[index].text);
    }
    auto in_model = model_->vocabulary().find(token.content);
    if (in_model != model_->vocabulary().end() && in_model->second != token.id) {
      raise(DS_ERROR_CORRUPT, "{}: '{}' has id {}, but {} in the model", where, token.content,
            token.id, in_model->second);
    }
    Spelling& known = spelling(token.id);
    known.special = token.special;
    added_.emplace(token.content, token.id);
    bool normalize = token.normalized && normalizer_;
    std::string content =
        normalize ? normalizer_->apply({token.content, {}, false}).text : token.content;
    known.text = content;  // a normalized token reads as it is looked for
    if (!content.empty()) (token.normalized ? in_normalized_ : as_given_).add(content, token);
  }

  std::optional<int32_t> id_of(const std::string& text) const {
    if (auto found = added_.find(text); found != added_.end()) return found->second;
    if (auto found = model_->vocabulary().find(text); found != model_->vocabulary().end())
      return found->second;
    return std::nullopt;
  }

  // A tokenizer.json does not say which of its tokens is the mask. Where the files beside it do not
  // either, it is the special token that is spelt like BERT's or RoBERTa's.
  void find_mask_token(const std::string& named) {
    if (!named.empty()) {
      mask_token_ = id_of(named);
      return;
    }
    for (const char* usual : {"[MASK]", "<mask>"}) {
      std::optional<int32_t> id = id_of(usual);
      if (!mask_token_ && id && spellings_[static_cast<size_t>(*id)].special) mask_token_ = id;
    }
  }

  void check_template(const Section& file, int32_t id) const {
    if (id >= vocab() || spellings_[static_cast<size_t>(id)].hole) {
      raise(DS_ERROR_CORRUPT, "{}: id {} is no token; the vocabulary has {}",
            file.path("post_processor"), id, vocab());
    }
  }

  std::string name_;
  std::unique_ptr<const Normalizer> normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const WordModel> model_;
  Decoder decoder_;
  Template template_;
  AddedTokenFinder as_given_, in_normalized_;
  std::unordered_map<std::string, int32_t> added_;
  std::vector<Spelling> spellings_;  // by id
  std::optional<int32_t> end_of_text_, mask_token_;
  Names names_;
};

}  // namespace

Json byte_level(bool add_prefix_space) {
  Json out;
  out.set("type", "ByteLevel");
  out.set("add_prefix_space", add_prefix_space);
  out.set("trim_offsets", true);
  out.set("use_regex", true);
  return out;
}

std::unique_ptr<const Tokenizer> make_hugging_face(const Json& json, const std::string& path,
                                                   const SpecialTokens& named) {
  Section file(json, path);
  return std::make_unique<HuggingFace>(file, path, named);
}

std::unique_ptr<const Tokenizer> open_hugging_face(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  SpecialTokens beside = read_special_tokens(folder.empty() ? "." : folder);
  Json json = read_tokenizer_json(path);
  add_files_beside(json, beside);
  return make_hugging_face(json, path, beside);
}

}  // namespace ds
