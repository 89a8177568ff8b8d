// Reads a sentencepiece tokenizer.model (BPE or unigram) through the library of that name.
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/utf8.h"
#include "io/file.h"
#include "io/file_kind.h"
#include "text/tokenizer.h"
#include "text/tokenizers/hugging_face.h"
#include "text/tokenizers/kinds.h"
#include "text/tokenizers/special_tokens.h"

namespace ds::text {
namespace {

// The library is immutable after loading, so threads share it without locks.
class SentencePiece : public Tokenizer {
 public:
  explicit SentencePiece(const std::string& path) : name_(path) {
    auto status = processor_.LoadFromSerializedProto(read_file(path));
    if (!status.ok()) {
      raise_fault(path, Error(DS_ERROR_CORRUPT, "not a whole sentencepiece model"),
                  Wanted::sentencepiece);
    }
    std::filesystem::path parent = std::filesystem::path(path).parent_path();
    std::string folder = parent.empty() ? "." : parent.string();
    SpecialTokens tokens = read_special_tokens(folder);
    check_added_tokens(tokens);
    // Unless the files beside the model say otherwise, a text begins with the beginning-of-text
    // piece and gets no piece at its end.
    add_begin_ = (tokens.add_begin || !tokens.begin_given) && processor_.bos_id() >= 0;
    add_end_ = tokens.add_end && processor_.eos_id() >= 0;
    names_ = tokens.named;
    // A chat template sees the model's own pieces under names that the files do not give.
    for (auto [name, id] : {std::pair{"bos_token", processor_.bos_id()},
                            {"eos_token", processor_.eos_id()},
                            {"unk_token", processor_.unk_id()}}) {
      auto same = [name = std::string_view(name)](const auto& one) { return one.first == name; };
      if (id >= 0 && std::ranges::none_of(names_, same)) {
        names_.emplace_back(name, processor_.IdToPiece(id));
      }
    }
    // For a text that is not a piece, PieceToId returns the id of the unknown piece: then there is
    // no mask token.
    int mask = tokens.mask.empty() ? processor_.unk_id() : processor_.PieceToId(tokens.mask);
    if (mask != processor_.unk_id()) mask_ = mask;
  }

  const std::string& name() const override { return name_; }
  int64_t vocab() const override { return processor_.GetPieceSize(); }
  std::optional<int32_t> end_of_text() const override {
    return processor_.eos_id() >= 0 ? std::optional(processor_.eos_id()) : std::nullopt;
  }

  Frame frame() const override {
    Frame out;
    if (add_begin_) out.before.push_back(processor_.bos_id());
    if (add_end_) out.after.push_back(processor_.eos_id());
    return out;
  }
  std::optional<int32_t> mask_token() const override { return mask_; }
  Names names() const override { return names_; }
  bool is_special(int32_t token) const override {
    return token >= 0 && token < vocab() &&
           (token == mask_ || token == processor_.eos_id() || processor_.IsControl(token) ||
            processor_.IsUnknown(token));
  }

  std::vector<int32_t> encode(std::string_view text, bool special) const override {
    std::string repaired;
    if (!is_utf8(text)) text = repaired = repair_utf8(text);
    std::vector<int> ids;
    check(processor_.Encode({text.data(), text.size()}, &ids));
    if (special && add_begin_) ids.insert(ids.begin(), processor_.bos_id());
    if (special && add_end_) ids.push_back(processor_.eos_id());
    return {ids.begin(), ids.end()};
  }

  // If a character is spelled by bytes, sentencepiece assigns its range to the last of these
  // tokens; here all of them get this range.
  Traced encode_traced(std::string_view text) const override {
    std::string repaired;
    if (!is_utf8(text)) text = repaired = repair_utf8(text);
    sentencepiece::ImmutableSentencePieceText pieces;
    check(processor_.Encode({text.data(), text.size()}, pieces.mutable_proto()));
    Traced out;
    for (size_t i = 0; i < pieces.pieces_size(); ++i) {
      auto piece = pieces.pieces(static_cast<int>(i));
      out.tokens.push_back(static_cast<int32_t>(piece.id()));
      out.sources.push_back({piece.begin(), piece.end()});
    }
    // Starts at the end, so that the range is passed on to all bytes of a character.
    for (size_t i = out.tokens.size(); i-- > 1;) {
      Range& before = out.sources[i - 1];
      if (before.begin == before.end && processor_.IsByte(out.tokens[i - 1]))
        before = out.sources[i];
    }
    return out;
  }

  // Control pieces have no text here, so skip_special changes nothing.
  std::string decode(std::span<const int32_t> tokens, bool) const override {
    std::vector<int> ids;
    std::string text;
    auto flush = [&] {
      std::string part;
      check(processor_.Decode(ids, &part));
      text += part;
      ids.clear();
    };
    // An id beyond the vocabulary, which a model with padded logits may generate, becomes U+FFFD.
    // The library would refuse it.
    for (int32_t token : tokens) {
      if (token >= 0 && token < vocab()) {
        ids.push_back(token);
        continue;
      }
      flush();
      text += "\xef\xbf\xbd";
    }
    flush();
    return text;
  }

 private:
  // Refuses added tokens that are not pieces of the model, because sentencepiece cannot find them
  // in a text.
  void check_added_tokens(const SpecialTokens& tokens) const {
    for (const SpecialTokens::Numbered& token : tokens.numbered) {
      bool piece =
          token.id < vocab() && processor_.IdToPiece(static_cast<int>(token.id)) == token.content;
      if (piece) continue;
      raise(DS_ERROR_UNSUPPORTED,
            "{}: token '{}' with id {} is not a piece of '{}', and added tokens are not supported "
            "beside it",
            token.file, token.content, token.id, name_);
    }
  }
  static std::string one_line(std::string text) {
    for (char& c : text) c = c == '\n' ? ' ' : c;
    return text;
  }
  void check(const sentencepiece::util::Status& status) const {
    if (!status.ok()) raise(DS_ERROR_INTERNAL, "{}: {}", name_, one_line(status.message()));
  }

  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
  bool add_begin_ = false, add_end_ = false;
  std::optional<int32_t> mask_;
  Names names_;
};

}  // namespace

std::unique_ptr<const Tokenizer> open_sentencepiece(const std::string& path) {
  return std::make_unique<SentencePiece>(path);
}

}  // namespace ds::text
