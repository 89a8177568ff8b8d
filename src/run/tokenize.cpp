#include "run/tokenize.h"

#include <fmt/core.h>

#include <memory>
#include <vector>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "data/chat.h"
#include "data/corpus.h"
#include "data/jsonl.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace ds {
namespace {

// Each file's tokens, with what the tokenizer puts around a text, and the token that ends a text
// behind each.
std::string tokenize_text(const DataConfig& data, const Tokenizer& tokenizer, TokenWriter& writer,
                          const volatile int32_t* stop) {
  constexpr int64_t kMostOfAFile = int64_t{1} << 40;
  Corpus seen;
  Hash128 hash;
  CorpusOptions options{data.paths, 0, kMostOfAFile, data.strip_licences, stop};
  for_each_text(options, kMostOfAFile, seen, [&](std::string& text) {
    hash.update(fmt::format("{}\n", text.size()));
    hash.update(text);
    std::vector<int32_t> tokens = tokenizer.encode(text, true);
    if (auto end = tokenizer.end_of_text()) tokens.push_back(*end);
    writer.add(tokens);
    ++seen.train_files;
    return true;
  });
  if (seen.train_files == 0) {
    raise(DS_ERROR_CONFIG,
          "data paths hold no text: first is '{}', {} files are not text, {} unreadable",
          data.paths.front(), seen.not_text, seen.unreadable);
  }
  writer.finish(hash.hex());
  return fmt::format(
      "{} tokens of {} files; left out: {} duplicates, {} not text, {} unreadable; hash {}",
      writer.size(), seen.train_files, seen.duplicates, seen.not_text, seen.unreadable, hash.hex());
}

}  // namespace

std::string tokenize_data(const Config& config, const std::string& path,
                          const volatile int32_t* stop) {
  const DataConfig& data = config.data;
  if (data.paths.empty()) {
    raise(DS_ERROR_CONFIG, "{} must name files or folders of text, got none",
          KeyName("data.paths"));
  }
  if (data.format == "tokens")
    raise(DS_ERROR_CONFIG, "{}: \"tokens\" are tokens already", KeyName("data.format"));
  if (data.tokenizer == kLearnTokenizer) {
    raise(DS_ERROR_CONFIG, "{}: \"{}\" is for a run; give a tokenizer's folder",
          KeyName("data.tokenizer"), kLearnTokenizer);
  }
  std::unique_ptr<const Tokenizer> tokenizer = open_tokenizer(data.tokenizer);
  TokenWriter::Options format{tokenizer->vocab(), tokenizer_hash(data.tokenizer), false, false};
  if (data.format == "text") {
    TokenWriter writer(path, format);
    return fmt::format("{}: {}", path, tokenize_text(data, *tokenizer, writer, stop));
  }
  ChatEncoder encoder(*tokenizer, data.tokenizer, data.chat_template, data.loss_on == "all");
  format.documents = true;
  format.marked = data.loss_on != "all";
  return fmt::format(
      "{}: {}", path,
      describe(write_jsonl_documents({data.paths, 0, stop}, encoder, format, path, "")));
}

}  // namespace ds
