#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/chat.h"
#include "data/token_file.h"

namespace ds {

// Lines of jsonl files as a file of documents, or two: line by line, so in memory that the longest
// line needs.
struct JsonlOptions {
  std::vector<std::string> paths;          // files, and folders searched for *.jsonl to any depth
  double heldout = 0;                      // share of the lines held out
  const volatile int32_t* stop = nullptr;  // non-zero ends it with DS_ERROR_USER
};
struct JsonlFacts {
  int64_t train = 0, heldout = 0;  // lines
  int64_t train_tokens = 0, targets = 0, heldout_tokens = 0;
  std::string hash;  // xxh3-128 of all lines and of which are held out
};

// A line is held out when the hash of its content says so; when that holds out none or all, the
// last ones are. heldout_path may be "" without a share to hold out. Throws as find_data_files and
// ChatEncoder::encode, naming file and line; DS_ERROR_CONFIG when there is no line.
JsonlFacts write_jsonl_documents(const JsonlOptions& options, const ChatEncoder& encoder,
                                 const TokenWriter::Options& format, const std::string& train_path,
                                 const std::string& heldout_path);
std::string describe(const JsonlFacts& facts);  // one line for the log

}  // namespace ds
