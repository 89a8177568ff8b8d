#include "run/tokenize.h"

#include <fmt/core.h>

#include <memory>
#include <vector>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/config/refuse.h"
#include "data/chat.h"
#include "data/corpus.h"
#include "data/jsonl.h"
#include "data/keys.h"
#include "data/token_file.h"
#include "data/tokenizer.h"

namespace ds {
namespace {

// Writes the tokens of each file, including those that the tokenizer adds around a text, and after
// each file the token that ends a text, if the tokenizer has one.
std::string tokenize_text(const DataKeys& data, const Tokenizer& tokenizer, TokenWriter& writer,
                          const volatile int32_t* stop) {
  constexpr int64_t kMostOfAFile = int64_t{1} << 40;
  Corpus seen;
  Hash128 hash;
  CorpusOptions options{data.paths, 0, kMostOfAFile, data.strip_licences, stop, data.text};
  for_each_text(options, kMostOfAFile, seen, [&](std::string& text) {
    // Including the length makes this a hash of the list of files, and not of their concatenated
    // text.
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

std::string tokenize_data(const DataKeys& data, const std::string& path,
                          const volatile int32_t* stop) {
  check_data_given(data);
  if (data.format == "tokens") refuse("data.format", "\"tokens\" is already tokenized");
  if (data.tokenizer == kLearnTokenizer) {
    refuse("data.tokenizer", "\"{}\" works only in a run; give the folder of a tokenizer",
           kLearnTokenizer);
  }
  std::unique_ptr<const Tokenizer> tokenizer = open_tokenizer(data.tokenizer);
  TokenWriter::Options format{tokenizer->vocab(), tokenizer_hash(data.tokenizer), false, false};
  if (data.format == "text") {
    TokenWriter writer(path, format);
    return fmt::format("{}: {}", path, tokenize_text(data, *tokenizer, writer, stop));
  }
  // Conversations keep their boundaries and, if only answers have a loss, the mark of each token.
  ChatEncoder encoder(*tokenizer, data.tokenizer, data.chat_template, data.loss_on == "all");
  format.documents = true;
  format.marked = data.loss_on != "all";
  return fmt::format(
      "{}: {}", path,
      describe(write_jsonl_documents({data.paths, 0, stop, data.text}, encoder, format, path, "")));
}

}  // namespace ds
