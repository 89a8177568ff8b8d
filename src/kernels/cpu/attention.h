#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include "kernels/cpu/cpu.h"

namespace ds::cpu {

constexpr double kLog2OfE = 1.4426950408889634;

// Rows of queries whose scores are alive at the same time; columns of scores come in multiples of
// it.
constexpr int64_t kStrip = 16;

struct Range {
  int64_t begin, end;
  bool empty() const { return begin >= end; }
  int64_t size() const { return end - begin; }
};

// Head h of row r of an operand or a gradient starts at data + r * row + h * head.
template <typename T>
struct Part {
  T* data;
  int64_t row, head;
  T* at(int64_t r, int64_t h) const { return data + r * row + h * head; }
};

// The heads of one batch and what their attributes mean for blocks of scores. Sequence s is rows
// [s * seq, min((s + 1) * seq, rows)), or, with documents, any rows that belong together; query
// head h reads key and value head h / group. Places of queries and keys count from the start of
// their sequence, whose `length` is given where it matters. So a document costs what a sequence of
// its length does, and has its bits.
struct HeadsShape {
  int64_t rows, heads, groups, group, depth, seq, sequences, window;
  bool packed, causal, per_head;
  const int32_t* mask;       // null: every key counts
  const int32_t* documents;  // null: none; equal in rows of the same document
  float scale;
  float factor;    // q is packed times this: products are then scores times log2 e, or scores / cap
  float limit;     // cap times log2 e; 0 without a cap
  float unfactor;  // scale / factor

  // `in` is qkv or q, k, v, then perhaps a mask or what tells documents apart.
  HeadsShape(std::span<const TensorView> in, const Attrs& attrs)
      : rows(in[0].dims[0]),
        heads(attrs.integer("heads")),
        groups(attrs.integer_or("kv_heads", 0) == 0 ? heads : attrs.integer("kv_heads")),
        group(heads / groups),
        seq(std::min(attrs.integer("seq"), rows)),
        sequences(ceil_div(rows, seq)),
        window(attrs.integer_or("window", 0)),
        packed(in.size() < 3),
        causal(attrs.integer_or("causal", 1) != 0),
        per_head(attrs.integer_or("per_head", 0) != 0),
        mask(in.size() % 2 == 0 ? in.back().as<int32_t>() : nullptr),
        documents(nullptr) {
    if (attrs.integer_or("documents", 0) != 0) std::swap(mask, documents);
    depth = in[0].dims[1] / (packed ? heads + 2 * groups : heads);
    double given = attrs.real_or("scale", 0), cap = attrs.real_or("softcap", 0);
    double product = given == 0 ? 1 / std::sqrt(static_cast<double>(depth)) : given;
    double unit = cap == 0 ? kLog2OfE : 1 / cap;
    scale = static_cast<float>(product);
    factor = static_cast<float>(product * unit);
    limit = static_cast<float>(cap * kLog2OfE);
    unfactor = static_cast<float>(1 / unit);
  }

  // q (0), k (1) or v (2) of operands or gradients, one array of them when packed.
  template <typename T>
  Part<T> part(std::span<const TensorView> views, size_t which) const {
    T* data = views[packed ? 0 : which].as<std::remove_const_t<T>>();
    int64_t keys = groups * depth, queries = heads * depth, index = static_cast<int64_t>(which);
    if (per_head) return {data + index * depth, 3 * queries, 3 * depth};
    if (!packed) return {data, which == 0 ? queries : keys, depth};
    return {data + (which == 0 ? 0 : queries + (index - 1) * keys), queries + 2 * keys, depth};
  }

  Range sequence(int64_t s) const { return {s * seq, std::min((s + 1) * seq, rows)}; }
  Range document_of(int64_t row) const {
    Range out{row, row + 1};
    while (out.begin > 0 && documents[out.begin - 1] == documents[row]) --out.begin;
    while (out.end < rows && documents[out.end] == documents[row]) ++out.end;
    return out;
  }
  // Keys that queries [first, first + count) see, all together.
  Range keys_of(int64_t first, int64_t count, int64_t length) const {
    return {window == 0 ? 0 : std::max<int64_t>(0, first - window + 1),
            causal ? first + count : length};
  }
  // Whether a query of the sequence that begins at row `begin` sees exactly one key.
  bool sees_one(int64_t query, int64_t begin, int64_t length) const {
    Range seen = keys_of(query, 1, length);
    if (!mask) return seen.end - seen.begin == 1;
    // From the end: what hides most keys of a causal query is padding at the beginning.
    int64_t count = 0;
    for (int64_t key = seen.end; count < 2 && key-- > seen.begin;) count += mask[begin + key] != 0;
    return count == 1;
  }
  // Queries that see one of the keys [first, first + count).
  Range queries_of(int64_t first, int64_t count, int64_t length) const {
    return {causal ? first : 0,
            window == 0 ? length : std::min(length, first + count - 1 + window)};
  }
  // Columns in a block of keys [k0, k0 + keys) that the queries see.
  Range columns_of(int64_t first, int64_t count, int64_t k0, int64_t keys, int64_t length) const {
    Range seen = keys_of(first, count, length);
    return {std::max<int64_t>(0, seen.begin - k0), std::min(keys, seen.end - k0)};
  }

  // Rows of a block of queries or keys: its f32 copies stay in the second-level cache.
  int64_t block() const {
    return std::min<int64_t>(depth <= 256 ? 128 : 32, round_up(seq, kStrip));
  }
  // Distance of rows whose columns are the keys of a block: no power of two, which would map them
  // to few sets of the first-level cache.
  int64_t columns() const { return block() + kStrip; }
};

// Rounded out to multiples of kStrip; empty stays empty.
inline Range round_out(Range r) {
  return r.empty() ? Range{0, 0} : Range{r.begin / kStrip * kStrip, round_up(r.end, kStrip)};
}

// Hands out f32 arrays of one thread's scratch, 64-byte aligned.
class Carver {
 public:
  explicit Carver(std::span<std::byte> bytes) : bytes_(bytes) {}
  float* floats(int64_t count) {
    size_t begin = used_;
    used_ += static_cast<size_t>(round_up(count, 16)) * sizeof(float);
    ensure(used_ <= bytes_.size(), "attention needs {} bytes of scratch, team has {}", used_,
           bytes_.size());
    return reinterpret_cast<float*>(bytes_.data() + begin);
  }
  int64_t left() const {
    return static_cast<int64_t>((bytes_.size() - used_) / sizeof(float)) / 16 * 16;
  }

 private:
  std::span<std::byte> bytes_;
  size_t used_ = 0;
};

}  // namespace ds::cpu
