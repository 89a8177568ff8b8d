#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "data/token_source.h"

namespace ds {

// Ranges of token files, one after the other, as one sequence.
class TokenText : public TokenSource {
 public:
  TokenText() = default;
  explicit TokenText(std::shared_ptr<TokenFile> file);  // all of it

  // Appends tokens [begin, end) of a file; of a file of documents, documents [begin, end). Files of
  // documents and streams do not mix, nor files of different vocabularies: DS_ERROR_CONFIG names
  // both.
  void append(std::shared_ptr<TokenFile> file, int64_t begin, int64_t end);

  int64_t size() const override { return size_; }
  int64_t vocab() const override { return parts_.empty() ? 1 : parts_[0].file->vocab(); }
  const std::string& path() const override;
  void copy(int64_t begin, std::span<int32_t> out) const override { copy(begin, out, {}); }
  void copy(int64_t begin, std::span<int32_t> out, std::span<uint8_t> targets) const;

  bool of_documents() const { return !parts_.empty() && parts_[0].file->documents() > 0; }
  int64_t documents() const { return static_cast<int64_t>(ends_.size()); }
  const std::vector<DocumentEnd>& ends() const {
    return ends_;
  }                          // of each document, in tokens of this text
  int64_t largest() const;   // no token is above it; -1: not known
  std::string hash() const;  // of the content: that of a whole file, when it is one
  void check() const;        // as TokenFile::check, of each file

 private:
  struct Part {
    std::shared_ptr<TokenFile> file;
    int64_t begin = 0, end = 0, at = 0;  // tokens of the file, and where they begin here
  };
  std::vector<Part> parts_;
  std::vector<DocumentEnd> ends_;
  int64_t size_ = 0;
};

}  // namespace ds
