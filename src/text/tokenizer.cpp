// Chooses the kind of a tokenizer by its files, and implements the tokenizer "bytes".
#include "text/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/path_kind.h"
#include "core/base/utf8.h"
#include "io/file.h"
#include "io/gguf.h"
#include "io/gguf_tokenizer.h"
#include "text/tokenizers/file_text.h"
#include "text/tokenizers/kinds.h"
#include "text/tokenizers/special_tokens.h"
#include "text/tokenizers/tokenizer_class.h"

namespace ds::text {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelConfig = "config.json";

constexpr std::string_view replacement = "\xef\xbf\xbd";  // U+FFFD

// The tokenizer "bytes", with one token for each of the 256 byte values. NUL, which no text
// contains, is the end-of-text token and is decoded like any other byte.
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

  // A byte represents the whole character to which it belongs.
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

// Returns the names of the files of further chat templates in a tokenizer's folder, which
// Transformers takes from this folder of it.
std::vector<std::string> template_files(const fs::path& folder) {
  const std::string inner = "additional_chat_templates";
  std::error_code ignored;
  std::vector<std::string> names;
  if (!fs::is_directory(folder / inner, ignored)) return names;
  for (const std::string& name : list_folder((folder / inner).string())) {
    if (name.ends_with(".jinja") && !fs::is_directory(folder / inner / name, ignored))
      names.push_back(inner + "/" + name);
  }
  return names;
}

// Returns the files of the tokenizer in a GGUF file.
std::vector<TokenizerFile> files_in_gguf(const std::string& path) {
  std::vector<TokenizerFile> files;
  for (const char* name : kGgufTokenizerFiles) files.push_back({path + "/" + name, name});
  if (has_tokenizer_file(files[0].path)) return files;
  raise(DS_ERROR_NOT_FOUND, "no tokenizer in '{}': it has no vocabulary; give token ids", path);
}

}  // namespace

// The first file decides the kind of tokenizer; the others change what it does.
std::vector<TokenizerFile> tokenizer_files(const std::string& name) {
  if (name == "bytes") return {};
  if (is_gguf(name)) return files_in_gguf(name);
  std::error_code ignored;
  // A dangling or circular link is treated as existing, so that opening it explains the failure.
  auto there = [&](const fs::path& path) { return fs::exists(fs::symlink_status(path, ignored)); };
  fs::path folder(name);
  std::vector<TokenizerFile> files;
  auto add = [&](const std::string& file) { files.push_back({(folder / file).string(), file}); };
  if (!fs::is_directory(name, ignored)) {
    if (!there(name)) {
      raise(DS_ERROR_NOT_FOUND,
            "tokenizer must be 'bytes', 'learn', or a file or folder that exists, got '{}'{}", name,
            path_hint(name, Sought::tokenizer));
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
          "merges.txt, vocab.txt; without one, give token ids{}",
          name, path_hint(name, Sought::tokenizer));
  }
  for (const char* file : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                           "chat_template.jinja"}) {
    if (there(folder / file)) add(file);
  }
  for (const std::string& file : template_files(folder)) add(file);
  if (files[0].name == "tokenizer.json" && there(folder / kModelConfig)) add(kModelConfig);
  return files;
}

// Returns the tokenizer class that the config.json at `path` selects, or "" if the class would be
// the same without it.
static std::string class_by_config(const std::string& path) {
  const std::string folder = folder_of(path);
  const std::string given = read_special_tokens(folder).tokenizer_class;
  const std::string name = tokenizer_class(given, read_tokenizer_object(path));
  return name == tokenizer_class(given, Json(Json::Object{})) ? "" : name;
}

std::string tokenizer_hash(const std::string& name) {
  Hash128 hash;
  for (const TokenizerFile& file : tokenizer_files(name)) {
    // Only the effect of config.json is hashed, so other changes in it do not change the hash.
    std::string text =
        file.name == kModelConfig ? class_by_config(file.path) : read_tokenizer_file(file.path);
    if (file.name == kModelConfig && text.empty()) continue;
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

}  // namespace ds::text
