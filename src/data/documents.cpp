// Samples of whole documents. Documents become pieces that fit a row, packing sorts pieces into
// rows, and a row is read from the file when a sample needs it.
#include "data/documents.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

#include "core/base/error.h"
#include "core/config/refuse.h"
#include "data/masking.h"
#include "data/permutation.h"
#include "data/token_file.h"

namespace ds {

DocumentSampler::DocumentSampler(const TokenText& text, int64_t sequence, Packing packing,
                                 uint64_t seed, int64_t batch_samples, int64_t group)
    : text_(&text), sequence_(sequence), packing_(packing), seed_(seed), group_(group) {
  require(sequence >= 1, "sequence must be at least 1, got {}", sequence);
  int64_t begin = 0, documents = 0;
  size_t first = 0;
  for (const DocumentEnd& end : text.ends()) {
    cut(begin, end);
    begin = end.end;
    if (group_ == 1 || ++documents % group_ != 0) continue;
    drop_incomplete(first);
    first = pieces_.size();
  }
  for (const Piece& piece : pieces_) cut_short_ += piece.next ? 1 : 0;
  if (packing != Packing::none) {
    pack();
  } else {
    one_a_row();
  }
  if (epoch_samples() >= batch_samples) return;
  refuse(text.path(), "{} documents make {} samples of {} tokens, but one batch needs {} samples",
         text.documents(), epoch_samples(), sequence, batch_samples);
}

// A document with marks is cut to one row, because further rows would lack the question to which
// they are the answer. A document in which each token is a target continues in further rows.
void DocumentSampler::cut(int64_t begin, const DocumentEnd& end) {
  size_t before = pieces_.size();
  for (int64_t at = begin; at < end.end; at += sequence_) {
    Piece piece{at, static_cast<int32_t>(std::min(sequence_, end.end - at)),
                at + sequence_ < end.end};
    if (has_target(piece)) pieces_.push_back(piece);
    if (!end.whole || group_ > 1) break;
  }
  if (group_ == 1 && pieces_.size() == before) ++left_out_;
}

// Removes the pieces from `first` on, those of a group, unless each document of the group has one.
void DocumentSampler::drop_incomplete(size_t first) {
  if (pieces_.size() == first + static_cast<size_t>(group_)) return;
  pieces_.resize(first);
  ++left_out_;
}

// Reads the marks only of a piece that fills a row. A shorter piece is an uncut document, or the
// end of one in which each token is a target, so it has a target unless it is a single token.
bool DocumentSampler::has_target(const Piece& piece) const {
  if (piece.length < sequence_) return piece.length > 1;
  std::vector<int32_t> tokens(static_cast<size_t>(piece.length) + (piece.next ? 1 : 0));
  std::vector<uint8_t> marks(tokens.size());
  text_->copy(piece.begin, tokens, marks);
  return std::find(marks.begin() + 1, marks.end(), 1) != marks.end();
}

// Puts each piece into a row of its own.
void DocumentSampler::one_a_row() {
  rows_.resize(pieces_.size() + 1);
  std::iota(rows_.begin(), rows_.end(), 0);
}

// Best fit decreasing: the longest piece first, each into the row with the least room that still
// holds it.
void DocumentSampler::pack() {
  std::vector<size_t> order(pieces_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return pieces_[a].length > pieces_[b].length; });
  std::vector<std::vector<size_t>> rows;
  // Rows by their number of free tokens.
  std::map<int64_t, std::vector<size_t>> open;
  for (size_t piece : order) {
    int64_t length = pieces_[piece].length;
    auto fitting = open.lower_bound(length);
    int64_t room = sequence_;
    size_t row = rows.size();
    if (fitting != open.end()) {
      room = fitting->first;
      row = fitting->second.back();
      fitting->second.pop_back();
      if (fitting->second.empty()) open.erase(fitting);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(piece);
    if (room > length) open[room - length].push_back(row);
  }
  std::vector<Piece> packed;
  rows_.push_back(0);
  for (const std::vector<size_t>& row : rows) {
    for (size_t piece : row) packed.push_back(pieces_[piece]);
    rows_.push_back(static_cast<int64_t>(packed.size()));
  }
  pieces_ = std::move(packed);
}

// Each epoch visits all rows once, in its own order.
int64_t DocumentSampler::row(int64_t sample) const {
  require(sample >= 0, "sample must not be negative, got {}", sample);
  int64_t all = epoch_samples();
  return permute(seed_, sample / all, sample % all, all) * group_;
}

void DocumentSampler::fill(int64_t row, size_t at, const BatchRows& to) const {
  pad(at, static_cast<size_t>(sequence_), to);
  place(row, at, to);
}

// Sums the pieces of the row; padding is not stored.
int64_t DocumentSampler::length(int64_t row) const {
  int64_t sum = 0;
  for (int64_t i = rows_[static_cast<size_t>(row)]; i < rows_[static_cast<size_t>(row) + 1]; ++i) {
    sum += pieces_[static_cast<size_t>(i)].length;
  }
  return sum;
}

// Marks and targets differ by one place: a marked token is the target of the token before it.
void DocumentSampler::place(int64_t row, size_t at, const BatchRows& to) const {
  std::vector<int32_t> text;
  std::vector<uint8_t> marks;
  // The first token of the row.
  const size_t first = at;
  for (int64_t i = rows_[static_cast<size_t>(row)]; i < rows_[static_cast<size_t>(row) + 1]; ++i) {
    const Piece& piece = pieces_[static_cast<size_t>(i)];
    auto length = static_cast<size_t>(piece.length);
    text.resize(length + (piece.next ? 1 : 0));
    marks.resize(text.size());
    text_->copy(piece.begin, text, marks);
    const BatchRows own = to.part(at, length);
    std::copy_n(text.begin(), length, own.tokens.begin());
    for (size_t t = 1; t < text.size(); ++t) {
      if (marks[t] != 0) own.targets[t - 1] = text[t];
    }
    const size_t begin = packing_ == Packing::joined ? first : at;
    std::ranges::fill(own.begins, static_cast<int32_t>(begin));
    std::ranges::fill(own.counted, 1);
    at += length;
  }
}

void DocumentSampler::rows(int64_t first, int64_t count, const BatchRows& to) const {
  check_rows(to, count * group_ * sequence_);
  for (int64_t i = 0; i < count * group_; ++i)
    fill(row(first + i / group_) + i % group_, static_cast<size_t>(i * sequence_), to);
}

std::string describe_pairs(const DocumentSampler& pairs, int64_t sequence) {
  std::string line = fmt::format("{} pairs in rows of {} tokens", pairs.epoch_samples(), sequence);
  if (pairs.cut_short() > 0) {
    line += fmt::format(
        "; {} texts are longer than run.sequence and lose their ends (preference.truncation_mode "
        "\"keep_start\")",
        pairs.cut_short());
  }
  if (pairs.left_out() > 0) {
    line += fmt::format("; {} pairs are left out, whose prompts leave no token of an answer",
                        pairs.left_out());
  }
  return line;
}

// Rows are windows of a stream, so a document also begins at each row.
void find_documents(int32_t separator, int64_t sequence, const BatchRows& rows) {
  size_t first = 0;
  for (size_t i = 0; i < rows.tokens.size(); ++i) {
    bool ended = i > 0 && separator >= 0 && rows.tokens[i - 1] == separator;
    if (i % static_cast<size_t>(sequence) == 0 || ended) first = i;
    rows.begins[i] = static_cast<int32_t>(first);
    if (separator >= 0 && rows.tokens[i] == separator) rows.targets[i] = kNoTarget;
  }
}

}  // namespace ds
