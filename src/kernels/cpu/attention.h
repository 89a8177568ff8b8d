#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/cpu/cpu.h"
#include "kernels/formulas/attention_shape.h"

namespace ds::cpu {

constexpr double kLog2OfE = 1.4426950408889634;

// The number of queries in a strip, whose scores are computed together. Ranges of columns are
// rounded out to multiples of this number.
constexpr int64_t kStrip = 16;

struct Range {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
  int64_t size() const { return end - begin; }
};

// The heads of one tensor, which is q, k, v, y or one of their gradients: head h of row r begins at
// data + r * row + h * head.
template <typename T>
struct Part {
  T* data;
  int64_t row, head;
  T* at(int64_t r, int64_t h) const { return data + r * row + h * head; }
};

// The shape of attention for one batch, in terms of blocks of scores. Sequence s is rows [s * seq,
// min((s + 1) * seq, rows)) or, with documents, the rows with equal entries in `documents`. Queries
// and keys are numbered from the start of their sequence, whose number of rows is passed as
// `length`. So a document needs the same work, and has the same bits, as a sequence of its length.
struct HeadsShape : AttentionShape {
  int64_t sequences;
  // The factor of q when it is packed. Products of q and k are then scores times log2 e or, with a
  // cap, scores / cap.
  float factor;
  // The cap times log2 e; 0 without a cap.
  float limit;
  // The quotient scale / factor. The sums of ds times packed q, which includes `factor`, are
  // multiplied by it to get dk.
  float unfactor;

  // `in` is qkv or q, k, v, then optionally a mask or, with documents, the first row of each row's
  // document.
  HeadsShape(std::span<const TensorView> in, const Attrs& attrs) : AttentionShape(in, attrs) {
    seq = std::min(seq, rows);
    sequences = ceil_div(rows, seq);
    double unit = cap == 0 ? kLog2OfE : 1 / cap;
    factor = static_cast<float>(scale * unit);
    limit = static_cast<float>(cap * kLog2OfE);
    unfactor = static_cast<float>(1 / unit);
  }

  // Returns q (which = 0), k (1) or v (2) from the operands, or its gradient from the gradients. If
  // packed, all three are in one tensor.
  template <typename T>
  Part<T> part(std::span<const TensorView> views, size_t which) const {
    const HeadPlace place = part_place(which);
    return {views[place.operand].as<std::remove_const_t<T>>() + place.start, place.row, place.head};
  }

  Range sequence(int64_t s) const { return {s * seq, std::min((s + 1) * seq, rows)}; }
  // Returns the rows of the document that `row` belongs to, by walking in both directions.
  Range document_of(int64_t row) const {
    Range out{row, row + 1};
    while (out.begin > 0 && documents[out.begin - 1] == documents[row]) --out.begin;
    while (out.end < rows && documents[out.end] == documents[row]) ++out.end;
    return out;
  }
  // Returns the range of keys that queries [first, first + count) see, taken together.
  Range keys_of(int64_t first, int64_t count, int64_t length) const {
    return {window == 0 ? 0 : std::max<int64_t>(0, first - window + 1),
            causal ? first + count : length};
  }
  // Returns whether a query of the sequence that begins at row `begin` sees exactly one key. The
  // search runs from the end: for a causal query, most masked keys are padding at the beginning.
  bool sees_one(int64_t query, int64_t begin, int64_t length) const {
    Range seen = keys_of(query, 1, length);
    if (!mask) return seen.end - seen.begin == 1;
    int64_t count = 0;
    for (int64_t key = seen.end; count < 2 && key-- > seen.begin;) count += mask[begin + key] != 0;
    return count == 1;
  }
  // Returns the range of queries that see at least one of the keys [first, first + count).
  Range queries_of(int64_t first, int64_t count, int64_t length) const {
    return {causal ? first : 0,
            window == 0 ? length : std::min(length, first + count - 1 + window)};
  }
  // Returns the columns of the block of keys [k0, k0 + keys) that queries [first, first + count)
  // see.
  Range columns_of(int64_t first, int64_t count, int64_t k0, int64_t keys, int64_t length) const {
    Range seen = keys_of(first, count, length);
    return {std::max<int64_t>(0, seen.begin - k0), std::min(keys, seen.end - k0)};
  }

  // Returns the number of rows in a block of queries or keys. Their f32 copies stay in the
  // second-level cache.
  int64_t block() const {
    return std::min<int64_t>(depth <= 256 ? 128 : 32, round_up(seq, kStrip));
  }
  // Returns the distance between rows of scores, whose columns are the keys of a block. A power of
  // two would map the rows to few sets of the first-level cache.
  int64_t columns() const { return block() + kStrip; }
};

// Rounds a range out to multiples of kStrip. An empty range stays empty.
inline Range round_out(Range r) {
  return r.empty() ? Range{0, 0} : Range{r.begin / kStrip * kStrip, round_up(r.end, kStrip)};
}

// An allocator of f32 arrays, 64-byte aligned, in one thread's scratch.
class Carver {
 public:
  explicit Carver(std::span<std::byte> bytes) : bytes_(bytes) {}
  float* floats(int64_t count) {
    size_t begin = used_;
    used_ += static_cast<size_t>(round_up(count, 16)) * sizeof(float);
    ensure(used_ <= bytes_.size(),
           "attention needs {} bytes of scratch per thread, but the team has {}", used_,
           bytes_.size());
    return reinterpret_cast<float*>(bytes_.data() + begin);
  }
  // Returns the number of floats that are left, rounded down to whole units of 64 bytes.
  int64_t left() const {
    return static_cast<int64_t>((bytes_.size() - used_) / sizeof(float)) / 16 * 16;
  }

 private:
  std::span<std::byte> bytes_;
  size_t used_ = 0;
};

}  // namespace ds::cpu
