#include "data/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/utf8.h"
#include "data/tokenizers/kinds.h"
#include "io/file.h"
#include "io/file_kind.h"

namespace ds {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

// A token a byte, 256 of them. NUL, which no text contains, ends a text; it is decoded like any
// byte.
class Bytes : public Tokenizer {
 public:
  const std::string& name() const override { return name_; }
  int64_t vocab() const override { return 256; }
  std::optional<int32_t> end_of_text() const override { return 0; }
  Frame frame() const override { return {}; }
  bool is_special(int32_t token) const override { return token == 0; }

  std::vector<int32_t> encode(std::string_view text, bool) const override {
    std::vector<int32_t> tokens(text.size());
    for (size_t i = 0; i < text.size(); ++i) tokens[i] = static_cast<uint8_t>(text[i]);
    return tokens;
  }

  Traced encode_traced(std::string_view text) const override {
    std::vector<Range> sources;
    for (size_t at = 0; at < text.size();) {
      size_t bytes = std::max<size_t>(1, utf8_sequence(text.substr(at)));
      sources.insert(sources.end(), bytes, {at, at + bytes});
      at += bytes;
    }
    return {encode(text, false), std::move(sources)};
  }

  std::string decode(std::span<const int32_t> tokens, bool) const override {
    std::string text;
    text.reserve(tokens.size());
    for (int32_t token : tokens) {
      if (token >= 0 && token < 256) {
        text.push_back(static_cast<char>(token));
      } else {
        text += replacement;
      }
    }
    return text;
  }

 private:
  std::string name_ = "bytes";
};

// Bytes at the end of `text` that may be the beginning of a character, or stand for one that is
// incomplete.
size_t unfinished_tail(std::string_view text) {
  size_t whole = text.size();
  while (whole >= replacement.size() && text.substr(0, whole).ends_with(replacement)) {
    whole -= replacement.size();
  }
  for (size_t back = 1; back <= 3 && back <= whole; ++back) {
    auto byte = static_cast<uint8_t>(text[whole - back]);
    if (byte < 0x80) break;
    if (byte < 0xc0) continue;  // inside a character: look for its lead
    if (utf8_sequence(text.substr(whole - back)) == 0) whole -= back;
    break;
  }
  return text.size() - whole;
}

}  // namespace

std::vector<TokenizerFile> tokenizer_files(const std::string& name) {
  if (name == "bytes") return {};
  namespace fs = std::filesystem;
  std::error_code ignored;
  // A link that leads nowhere or in a circle is there: opening it tells.
  auto there = [&](const fs::path& path) { return fs::exists(fs::symlink_status(path, ignored)); };
  fs::path folder(name);
  std::vector<TokenizerFile> files;
  auto add = [&](const char* file) { files.push_back({(folder / file).string(), file}); };
  if (!fs::is_directory(name, ignored)) {
    if (!there(name)) {
      raise(DS_ERROR_NOT_FOUND,
            "tokenizer must be 'bytes', 'learn', or a file or folder that exists, got '{}'{}", name,
            folder_hint(name));
    }
    files.push_back({name, name.ends_with(".model") ? "tokenizer.model" : "tokenizer.json"});
    folder = folder.parent_path();
  } else if (there(folder / "tokenizer.json")) {
    add("tokenizer.json");
  } else if (there(folder / "tokenizer.model")) {
    add("tokenizer.model");
  } else if (there(folder / "vocab.json") && there(folder / "merges.txt")) {
    add("vocab.json");
    add("merges.txt");
  } else if (there(folder / "vocab.txt")) {
    add("vocab.txt");
  } else {
    raise(DS_ERROR_NOT_FOUND,
          "no tokenizer in '{}': looked for tokenizer.json, tokenizer.model, vocab.json with "
          "merges.txt, "
          "vocab.txt; "
          "without one, give token ids{}",
          name, folder_hint(name));
  }
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "chat_template.jinja"}) {
    if (there(folder / file)) add(file);
  }
  return files;
}

std::string tokenizer_hash(const std::string& name) {
  Hash128 hash;
  for (const TokenizerFile& file : tokenizer_files(name)) {
    std::string text = read_file(file.path);
    hash.update(file.name + " " + std::to_string(text.size()) + "\n");
    hash.update(text);
  }
  return hash.hex();
}

std::unique_ptr<const Tokenizer> open_tokenizer(const std::string& name) {
  std::vector<TokenizerFile> files = tokenizer_files(name);
  if (files.empty()) return std::make_unique<Bytes>();
  const TokenizerFile& first = files[0];
  if (first.name == "tokenizer.json") return open_hugging_face(first.path);
  if (first.name == "tokenizer.model") return open_sentencepiece(first.path);
  if (first.name == "vocab.txt") return open_bert_vocabulary(name);
  return open_gpt2_pair(name);
}

void TextStream::begin(std::span<const int32_t> tokens) {
  tokens_.assign(tokens.begin(), tokens.end());
  context_ = tokens_.size();
  shown_ = tokenizer_->decode(tokens_, skip_special_).size();
}

std::string TextStream::push(int32_t token) {
  tokens_.push_back(token);
  if (tokenizer_->joins_next(token)) return "";
  return take(false);
}

std::string TextStream::finish() {
  std::string rest = take(true);
  tokens_.clear();
  context_ = shown_ = 0;
  return rest;
}

// The context gives the held tokens the surroundings that decoding looks at (a first token loses
// its leading space). It begins anew once all tokens have been shown, at tokens that have a text of
// their own.
std::string TextStream::take(bool all) {
  constexpr size_t most_held = 64;  // tokens; so many that make no character will not become one
  std::string text = tokenizer_->decode(tokens_, skip_special_);
  size_t tail = all || tokens_.size() - context_ > most_held ? 0 : unfinished_tail(text);
  size_t end = std::max(text.size() - tail, shown_);
  std::string part =
      repair_utf8(std::string_view(text).substr(std::min(shown_, text.size()), end - shown_));
  shown_ = end;
  if (tail > 0 || tokens_.size() == context_) return part;
  std::span<const int32_t> fresh = std::span(tokens_).subspan(context_);
  size_t fresh_bytes = tokenizer_->decode(fresh, skip_special_).size();
  if (fresh_bytes == 0) return part;
  tokens_.assign(fresh.begin(), fresh.end());
  context_ = tokens_.size();
  shown_ = fresh_bytes;
  return part;
}

}  // namespace ds
