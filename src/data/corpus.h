#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ds {

struct CorpusOptions {
  // Files, and folders that are searched to any depth.
  std::vector<std::string> paths;
  // Share of the text that is held out, 0 <= share < 1.
  double heldout = 0.05;
  // The largest number of bytes of the training and held-out text together.
  int64_t max_bytes = 16 << 20;
  // Whether leading comments that state a licence are removed.
  bool strip_licences = true;
  // If *stop becomes non-zero, reading ends with DS_ERROR_USER before the next file.
  const volatile int32_t* stop = nullptr;
  // The only document, in place of files, unless it is "".
  std::string text;
};

// Text for training and evaluation, gathered from files or given. It is a pure function of the
// options and of the contents and names of the files.
struct Corpus {
  // Each file is followed by one NUL byte, which no text contains.
  std::string train, heldout;
  // xxh3-128 of both texts and their sizes.
  std::string hash;
  int64_t train_files = 0, heldout_files = 0;
  // Files left out because an earlier one has the same content.
  int64_t duplicates = 0;
  // Files left out because they contain a NUL byte or invalid UTF-8, or nothing but space.
  int64_t not_text = 0;
  // Files in folders that could not be read.
  int64_t unreadable = 0;
  // True if max_bytes was reached: the last file may be cut, and no later one was read.
  bool full = false;
};

// Reads files in the order of their paths until max_bytes. A symbolic link inside a folder is
// followed to a file but not to a folder. Whether a file is held out depends on the hash of its
// content alone, so a text never moves between training and held-out text when other files come or
// go. If this holds out nothing or everything, the last share of the text is held out instead.
// Throws like find_data_files; also DS_ERROR_CONFIG if the files hold no text or the given text is
// unusable, DS_ERROR_IO if a file that `paths` names cannot be read, and DS_ERROR_CORRUPT for a Git
// LFS pointer.
Corpus read_corpus(const CorpusOptions& options);

// Calls `on_text` with the given text or with each text of the files, in the order of their paths
// and cut to at most `limit` bytes, until it returns false. Duplicates, files that are not text and
// unreadable files of folders are only counted in `corpus`. Needs memory for one text and a hash of
// each.
void for_each_text(const CorpusOptions& options, int64_t limit, Corpus& corpus,
                   const std::function<bool(std::string& text)>& on_text);

// Returns one line for the log: files, bytes, files that were left out, hash.
std::string describe(const Corpus& corpus);

}  // namespace ds
