// Gathers texts from files. Files are cut, stripped of licences and tested one by one, so memory
// holds at most one file that is not part of the corpus.
#include "data/corpus.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "core/base/content_kind.h"
#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/path_kind.h"
#include "core/base/utf8.h"
#include "core/config/refuse.h"
#include "data/data_files.h"
#include "data/licence.h"
#include "io/file.h"

namespace ds {
namespace {

// Reads the first `limit` bytes of a file. Returns false if the system refuses it.
bool read_prefix(const std::string& path, int64_t limit, std::string& text) {
  try {
    File file(path, File::Mode::read);
    text.resize(static_cast<size_t>(std::min(file.size(), limit)));
    file.read(text.data(), text.size(), 0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Cuts a text to at most `limit` bytes without splitting a character.
void cut_text(std::string& text, size_t limit) {
  if (text.size() <= limit) return;
  while (limit > 0 && (static_cast<uint8_t>(text[limit]) & 0xc0) == 0x80) --limit;
  text.resize(limit);
}

// Returns whether a text can be trained on. Whitespace alone cannot; a NUL separates texts and
// cannot be in one.
bool is_text(std::string_view text) {
  return text.find('\0') == text.npos && text.find_first_not_of(" \t\r\n") != text.npos &&
         is_utf8(text);
}

// A text, and whether the hash of its content assigns it to the held-out text.
struct TextFile {
  std::string text;
  bool heldout;
};

// Returns the documents to keep, and counts the others in corpus.
std::vector<TextFile> read_documents(const CorpusOptions& options, Corpus& corpus) {
  std::vector<TextFile> documents;
  int64_t room = options.max_bytes;
  for_each_text(options, options.max_bytes, corpus, [&](std::string& text) {
    // Decided before the cut to the remaining room, so that it does not depend on earlier files.
    bool heldout = static_cast<double>(hash64(text)) * 0x1p-64 < options.heldout;
    corpus.full = static_cast<int64_t>(text.size()) >= room;
    cut_text(text, static_cast<size_t>(room - 1));
    room -= static_cast<int64_t>(text.size()) + 1;
    documents.push_back({text, heldout});
    return !corpus.full;
  });
  return documents;
}

// If no text is held out, or all of it is, holds out the end of the text instead.
void hold_out_tail(Corpus& corpus, double share) {
  // One of the two is empty.
  std::string all = corpus.train + corpus.heldout;
  auto keep = static_cast<size_t>(static_cast<double>(all.size()) * (1 - share));
  while (keep > 0 && keep < all.size() && (static_cast<uint8_t>(all[keep]) & 0xc0) == 0x80) --keep;
  corpus.heldout = all.substr(keep);
  corpus.train = all.substr(0, keep);
}

}  // namespace

void for_each_text(const CorpusOptions& options, int64_t limit, Corpus& corpus,
                   const std::function<bool(std::string& text)>& on_text) {
  std::unordered_set<std::string> seen;
  std::string text = options.text;
  if (!text.empty()) {
    cut_text(text, static_cast<size_t>(limit));
    if (!is_text(text)) {
      refuse("data.text",
             "must be UTF-8 without NUL and with more than white space, got {} bytes that are not",
             options.text.size());
    }
    on_text(text);
    return;
  }
  for (const DataFile& file : find_data_files(options.paths, options.stop).files) {
    check_text_stop(options.stop);
    // Reads 4 bytes more than needed: enough to see whether the text fits, and to find the end of
    // its last character.
    if (!read_prefix(file.path, limit + 4, text)) {
      if (file.named) raise(DS_ERROR_IO, "data path '{}' cannot be read", file.path);
      ++corpus.unreadable;
      continue;
    }
    // A Git LFS pointer is valid text, so it would be trained on silently.
    if (const std::string pointer = git_lfs_pointer(text); !pointer.empty())
      raise(DS_ERROR_CORRUPT, "data path '{}' is {}", file.path, pointer);
    cut_text(text, static_cast<size_t>(limit));
    if (options.strip_licences) text = strip_licence(text);
    if (!is_text(text)) {
      const std::string kind =
          content_kind(std::string_view(text).substr(0, kContentHead), Wanted::text);
      if (file.named && !text.empty() && !kind.empty())
        raise(DS_ERROR_CONFIG, "data path '{}' is {}", file.path, kind);
      ++corpus.not_text;
      continue;
    }
    if (!seen.insert(hash_hex(text)).second) {
      ++corpus.duplicates;
      continue;
    }
    if (!on_text(text)) return;
  }
}

Corpus read_corpus(const CorpusOptions& options) {
  require(!options.paths.empty() || !options.text.empty(),
          "data paths must name a file or folder, got none");
  require(options.heldout >= 0 && options.heldout < 1, "heldout must be in [0, 1), got {}",
          options.heldout);
  require(options.max_bytes > 0, "max_bytes must be positive, got {}", options.max_bytes);
  Corpus corpus;
  for (const TextFile& document : read_documents(options, corpus)) {
    std::string& side = document.heldout ? corpus.heldout : corpus.train;
    side.append(document.text).push_back('\0');
    ++(document.heldout ? corpus.heldout_files : corpus.train_files);
  }
  if (corpus.train.empty() && corpus.heldout.empty()) {
    raise(DS_ERROR_CONFIG,
          "data.paths hold no text: the first path is '{}'; {} files are not text, {} unreadable{}",
          options.paths.front(), corpus.not_text, corpus.unreadable,
          path_hint(options.paths.front(), Sought::data));
  }
  if (options.heldout > 0 && (corpus.train.empty() || corpus.heldout.empty())) {
    hold_out_tail(corpus, options.heldout);
  }
  // The sizes show where one text ends and the other begins.
  Hash128 hash;
  hash.update(fmt::format("{} {}\n", corpus.train.size(), corpus.heldout.size()));
  hash.update(corpus.train);
  hash.update(corpus.heldout);
  corpus.hash = hash.hex();
  return corpus;
}

// The numbers of files that were left out show the user what the corpus lacks.
std::string describe(const Corpus& corpus) {
  return fmt::format(
      "corpus: {} files, {} bytes to train; {} files, {} bytes held out; left out: {} duplicates, "
      "{} not text, {} unreadable{}; hash {}",
      corpus.train_files, corpus.train.size(), corpus.heldout_files, corpus.heldout.size(),
      corpus.duplicates, corpus.not_text, corpus.unreadable,
      corpus.full ? ", all beyond max_bytes" : "", corpus.hash);
}

}  // namespace ds
