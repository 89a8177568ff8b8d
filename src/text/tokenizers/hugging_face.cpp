// Builds a tokenizer from the parts of a tokenizer.json.
//
// Encoding: added tokens that are not normalized are cut out of the text as given; each stretch
// between them is normalized, and the other added tokens are cut out of the result; what remains
// goes through the pre-tokenizer and the model. Each step keeps the origin of its bytes if the
// caller needs it, so that a token can be traced to the text. The tokens of the template are put
// around the result. Decoding: spellings of tokens go through the decoder.
//
// All parts are read with every key accounted for (section.h), so that a file with a feature that
// libds lacks is refused by name instead of being read differently.
#include "text/tokenizers/hugging_face.h"

#include <fmt/core.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/utf8.h"
#include "text/tokenizers/added_tokens.h"
#include "text/tokenizers/decoder.h"
#include "text/tokenizers/file_text.h"
#include "text/tokenizers/files_beside.h"
#include "text/tokenizers/kinds.h"
#include "text/tokenizers/normalizer.h"
#include "text/tokenizers/pre_tokenizer.h"
#include "text/tokenizers/section.h"
#include "text/tokenizers/template.h"
#include "text/tokenizers/tokenizer_class.h"
#include "text/tokenizers/traced_text.h"
#include "text/tokenizers/word_model.h"

namespace ds::text {
namespace {

// All parts are immutable after construction, so threads share them without locks.
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
    // Transformers neither truncates nor pads unless its caller requests it.
    for (const char* key : {"truncation", "padding"}) file.skip(key);
    bool fallback = has_byte_fallback(file.find("decoder"));
    for (const auto& [piece, id] : model_->vocabulary()) {
      spelling(id).text = piece;
      spelling(id).byte = fallback && fallback_byte(piece);
    }
    if (file.find("added_tokens")) read_added_tokens(file, named.split);
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

  // The template surrounds the tokens of the text.
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

  // Ids without a token, including those beyond the vocabulary, become U+FFFD.
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
    // `hole` is true for an id without a token, `byte` for a token of byte fallback.
    bool special = false, hole = true, byte = false;
  };

  // Encodes a text without the template. Added tokens that are not normalized are searched for
  // first, in the text as given.
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

  // Encodes a text from which the added tokens of the text as given have been cut: normalizes it,
  // cuts it at the other added tokens, and passes the rest through the model.
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

  // Returns the spelling of an id and marks the id as used. Smaller ids that no token uses stay
  // holes.
  Spelling& spelling(int32_t id) {
    auto index = static_cast<size_t>(id);
    if (index >= spellings_.size()) spellings_.resize(index + 1);
    spellings_[index].hole = false;
    return spellings_[index];
  }

  // Reads the added tokens, and keeps those with a spelling in `split` as text. An id that another
  // entry has, or that the model gives to another piece, is an error in the file.
  void read_added_tokens(Section& file, const std::set<std::string>& split) {
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
      token.split = split.contains(token.content);
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

  // Contradictions between the model and an added token are errors of the file.
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
    // A normalized token decodes to the normalized text, which is also searched for.
    known.text = content;
    if (!content.empty()) (token.normalized ? in_normalized_ : as_given_).add(content, token);
  }

  // Returns the id of a token, if there is one. Added tokens hide pieces of the model with the same
  // spelling.
  std::optional<int32_t> id_of(const std::string& text) const {
    if (auto found = added_.find(text); found != added_.end()) return found->second;
    if (auto found = model_->vocabulary().find(text); found != model_->vocabulary().end())
      return found->second;
    return std::nullopt;
  }

  // Sets the mask token. A tokenizer.json does not name the mask token. If the files beside it do
  // not name one either, the special token spelled like BERT's or RoBERTa's is used.
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

  // Refuses an id of the template that is not a token of this file.
  void check_template(const Section& file, int32_t id) const {
    if (id >= vocab() || spellings_[static_cast<size_t>(id)].hole) {
      raise(DS_ERROR_CORRUPT, "{}: token id {} is not in the vocabulary, which has {} ids",
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
  // Indexed by id.
  std::vector<Spelling> spellings_;
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

// The class decides how the files beside change the content, so it is found first.
std::unique_ptr<const Tokenizer> open_hugging_face(const std::string& path) {
  const std::string folder = folder_of(path);
  SpecialTokens beside = read_special_tokens(folder);
  beside.tokenizer_class =
      tokenizer_class(beside.tokenizer_class, read_tokenizer_object(folder + "/config.json"));
  Json json = read_tokenizer_json(path);
  add_files_beside(json, beside);
  return make_hugging_face(json, path, beside);
}

}  // namespace ds::text
