#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/token_file.h"

namespace ds {

// Options of write_jsonl_documents().
struct JsonlOptions {
  // Files, and folders searched to any depth for .jsonl and .ndjson or, if a folder has neither,
  // .json.
  std::vector<std::string> paths;
  // Share of the lines that is held out.
  double heldout = 0;
  // If *stop becomes non-zero, reading ends with DS_ERROR_USER.
  const volatile int32_t* stop = nullptr;
  // The lines, in place of files, unless it is "".
  std::string text;
  // Whether each line is a pair (data/pairs.h), which becomes two documents.
  bool pairs = false;
};
struct JsonlFacts {
  // Numbers of lines.
  int64_t train = 0, heldout = 0;
  int64_t train_tokens = 0, targets = 0, heldout_tokens = 0;
  // xxh3-128 of all lines and of the choice of held-out ones.
  std::string hash;
  // Names of files in the folders that were left out, as left_out_text() returns them.
  std::string left_out;
};

// Turns the lines of jsonl files into one file of documents or two. Lines are read one by one, so
// memory is needed for the longest line only; a file that is one JSON list is read as a whole. A
// line is held out if the hash of its content says so; if this holds out none or all, the last
// lines are held out. heldout_path may be "" if nothing is to be held out. Throws like
// find_data_files and ChatEncoder::encode, naming file and line, and DS_ERROR_CONFIG if there are
// no lines.
JsonlFacts write_jsonl_documents(const JsonlOptions& options, const ChatEncoder& encoder,
                                 const TokenWriter::Options& format, const std::string& train_path,
                                 const std::string& heldout_path);
// Returns one line for the log.
std::string describe(const JsonlFacts& facts);

}  // namespace ds
