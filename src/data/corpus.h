#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ds {

struct CorpusOptions {
  std::vector<std::string> paths;  // files, and folders searched to any depth
  double heldout = 0.05;           // share of the text held out, 0 <= share < 1
  int64_t max_bytes = 16 << 20;    // of train and held-out text together
  bool strip_licences = true;      // remove leading comments that state a licence
  const volatile int32_t* stop =
      nullptr;  // non-zero ends read_corpus with DS_ERROR_USER, between two files
};

// Text for training and evaluation, gathered from files. A pure function of the options and of the
// files' content and names.
struct Corpus {
  std::string train, heldout;  // each file followed by one NUL byte, which no text contains
  std::string hash;            // xxh3-128 over both texts
  int64_t train_files = 0, heldout_files = 0;
  int64_t duplicates = 0;  // files left out because an earlier one has the same content
  int64_t not_text =
      0;  // files left out because of a NUL byte, invalid UTF-8, or nothing but space
  int64_t unreadable = 0;  // files in folders that the system refuses to open
  bool full = false;       // max_bytes was reached: the last file may be cut, no later one was read
};

// Reads files in order of their paths until max_bytes. A symbolic link inside a folder is followed
// to a file, not to a folder. A file is held out when the hash of its content says so, so a text
// never moves between the two sides when other files come or go; if that holds out nothing or
// everything, the last share of the text is held out instead. Throws DS_ERROR_NOT_FOUND naming the
// path, DS_ERROR_CONFIG when there is no text or a path is neither a file nor a folder (a pipe has
// no end).
Corpus read_corpus(const CorpusOptions& options);

// Calls `on_text` with each text of the files in order of their paths, which has at most `limit`
// bytes, until it returns false. Duplicates, files that are no text, and unreadable files are
// counted in `corpus` instead. In memory that the largest file needs.
void for_each_text(const CorpusOptions& options, int64_t limit, Corpus& corpus,
                   const std::function<bool(std::string& text)>& on_text);

// One line for the log: files, bytes, what was left out, hash.
std::string describe(const Corpus& corpus);

}  // namespace ds
