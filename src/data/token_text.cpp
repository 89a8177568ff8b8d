// Several token files as one sequence. Parts are sorted by their offset in the text, so a position
// is found by binary search.
#include "data/token_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/base/error.h"
#include "core/base/hash.h"

namespace ds {

TokenText::TokenText(std::shared_ptr<TokenFile> file) {
  int64_t all = file->documents() > 0 ? file->documents() : file->size();
  append(std::move(file), 0, all);
}

void TokenText::append(std::shared_ptr<TokenFile> file, int64_t begin, int64_t end) {
  if (!parts_.empty()) {
    const TokenFile& first = *parts_[0].file;
    if (first.vocab() != file->vocab()) {
      raise(DS_ERROR_CONFIG, "{} has a vocabulary of {}, but {} has {}", KeyName(file->path()),
            file->vocab(), first.path(), first.vocab());
    }
    if ((first.documents() > 0) != (file->documents() > 0) && file->size() > 0) {
      raise(DS_ERROR_CONFIG, "{} holds {}, but {} holds {}", KeyName(file->path()),
            file->documents() > 0 ? "documents" : "one text", first.path(),
            first.documents() > 0 ? "documents" : "one text");
    }
  }
  Part part{file, begin, end, size_};
  // Converts the range of documents to a range of tokens.
  if (file->documents() > 0) {
    std::vector<DocumentEnd> ends = file->ends();
    part.begin = begin == 0 ? 0 : ends[static_cast<size_t>(begin - 1)].end;
    part.end = end == 0 ? 0 : ends[static_cast<size_t>(end - 1)].end;
    for (int64_t i = begin; i < end; ++i) {
      const DocumentEnd& one = ends[static_cast<size_t>(i)];
      ends_.push_back({one.end - part.begin + size_, one.whole});
    }
  }
  size_ += part.end - part.begin;
  parts_.push_back(std::move(part));
}

const std::string& TokenText::path() const {
  static const std::string none;
  return parts_.empty() ? none : parts_[0].file->path();
}

// Finds the part that contains `begin` and continues through the following ones.
void TokenText::copy(int64_t begin, std::span<int32_t> out, std::span<uint8_t> targets) const {
  auto wanted = static_cast<int64_t>(out.size());
  require(begin >= 0 && wanted <= size_ && begin <= size_ - wanted,
          "{}: {} tokens wanted at {}, but the text has {}", path(), wanted, begin, size_);
  auto part = std::ranges::upper_bound(parts_, begin, {}, &Part::at);
  for (--part; !out.empty(); ++part) {
    int64_t within = begin - part->at;
    auto count = static_cast<size_t>(
        std::min<int64_t>(part->end - part->begin - within, static_cast<int64_t>(out.size())));
    part->file->copy(part->begin + within, out.first(count),
                     targets.empty() ? targets : targets.first(count));
    out = out.subspan(count);
    if (!targets.empty()) targets = targets.subspan(count);
    begin += static_cast<int64_t>(count);
  }
}

int64_t TokenText::largest() const {
  int64_t out = 0;
  for (const Part& part : parts_) {
    // Files of version 1 do not say their largest token.
    if (part.file->largest() < 0 && part.file->size() > 0) return -1;
    out = std::max(out, part.file->largest());
  }
  return out;
}

// The hash of several parts, or of a part of a file, covers the hashes of the files and the ranges.
std::string TokenText::hash() const {
  if (parts_.size() == 1 && parts_[0].begin == 0 && parts_[0].end == parts_[0].file->size()) {
    return parts_[0].file->hash();
  }
  Hash128 all;
  for (const Part& part : parts_)
    all.update(fmt::format("{} {} {}\n", part.file->hash(), part.begin, part.end));
  return all.hex();
}

void TokenText::check() const {
  for (const Part& part : parts_) part.file->check();
}

}  // namespace ds
