#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "data/token_source.h"

namespace ds {

// Ranges of token files, one after another, as one sequence.
class TokenText : public TokenSource {
 public:
  TokenText() = default;
  // Creates a text of all tokens of a file.
  explicit TokenText(std::shared_ptr<TokenFile> file);

  // Appends tokens [begin, end) of a file or, if it holds documents, documents [begin, end). Throws
  // DS_ERROR_CONFIG, naming both files, if it would mix documents with a stream or different
  // vocabularies.
  void append(std::shared_ptr<TokenFile> file, int64_t begin, int64_t end);

  int64_t size() const override { return size_; }
  int64_t vocab() const override { return parts_.empty() ? 1 : parts_[0].file->vocab(); }
  const std::string& path() const override;
  void copy(int64_t begin, std::span<int32_t> out) const override { copy(begin, out, {}); }
  void copy(int64_t begin, std::span<int32_t> out, std::span<uint8_t> targets) const;

  bool of_documents() const { return !parts_.empty() && parts_[0].file->documents() > 0; }
  int64_t documents() const { return static_cast<int64_t>(ends_.size()); }
  // Returns the end of each document, in tokens of this text.
  const std::vector<DocumentEnd>& ends() const { return ends_; }
  // Returns the largest token of the files; -1 if it is not known.
  int64_t largest() const;
  // Returns the hash of the content. For a whole file it is the hash of the file.
  std::string hash() const;
  // Checks each file as TokenFile::check does.
  void check() const;

 private:
  struct Part {
    std::shared_ptr<TokenFile> file;
    // Range of tokens of the file, and its offset in this text.
    int64_t begin = 0, end = 0, at = 0;
  };
  std::vector<Part> parts_;
  std::vector<DocumentEnd> ends_;
  int64_t size_ = 0;
};

}  // namespace ds
