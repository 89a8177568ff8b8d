#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/base/attrs.h"
#include "core/device/view.h"

namespace ds {

// The place of the heads of q, k or v: head h of row r begins at element start + r * row + h * head
// of the operand with index `operand`.
struct HeadPlace {
  size_t operand;
  int64_t start, row, head;
  int64_t at(int64_t r, int64_t h) const { return start + r * row + h * head; }
};

// The layout of q, k and v, which are three operands or packed in one. A packed row holds all heads
// of q, then those of k, then those of v; with per_head it holds q, k and v of head 0, then of head
// 1, and so on. Query head h reads key and value head h / group.
struct HeadLayout {
  int64_t heads, groups, group, depth;
  bool packed, per_head;

  // Returns the place of q (which = 0), k (1) or v (2) among the operands, which is also the place
  // of its gradient among the results.
  HeadPlace part_place(size_t which) const {
    const int64_t queries = heads * depth, keys = groups * depth;
    const auto index = static_cast<int64_t>(which);
    if (per_head) return {0, index * depth, 3 * queries, 3 * depth};
    if (!packed) return {which, 0, which == 0 ? queries : keys, depth};
    return {0, which == 0 ? 0 : queries + (index - 1) * keys, queries + 2 * keys, depth};
  }
};

// The operands and attributes of `attention` and `attention_dx` in docs/reference/ops.md, for all
// implementations. `in` is qkv or q, k, v, then optionally a mask or, with documents, the first row
// of each row's document.
struct AttentionShape : HeadLayout {
  int64_t rows, seq, window;
  bool causal, by_document;
  // A scale of 0 has been replaced by 1 / sqrt(depth).
  double scale, cap;
  // For each row, 0 if no query sees its key. Null if no key is masked.
  const int32_t* mask;
  // For each row, the first row of its document. Null if there are no documents.
  const int32_t* documents;

  AttentionShape(std::span<const TensorView> in, const Attrs& attrs)
      : seq(attrs.integer("seq")),
        window(attrs.integer_or("window", 0)),
        causal(attrs.integer_or("causal", 1) != 0),
        by_document(attrs.integer_or("documents", 0) != 0),
        scale(attrs.real_or("scale", 0)),
        cap(attrs.real_or("softcap", 0)) {
    heads = attrs.integer("heads");
    groups = attrs.integer_or("kv_heads", 0) == 0 ? heads : attrs.integer("kv_heads");
    group = heads / groups;
    packed = in.size() < 3;
    per_head = attrs.integer_or("per_head", 0) != 0;
    depth = in[0].dims[1] / (packed ? heads + 2 * groups : heads);
    if (scale == 0) scale = 1 / std::sqrt(static_cast<double>(depth));
    bind(in);
  }

  // Sets rows, mask and documents from `in`. Must be called at each launch if the shape was
  // constructed before its operands had data.
  void bind(std::span<const TensorView> in) {
    rows = in[0].dims[0];
    mask = in.size() % 2 == 0 ? in.back().as<int32_t>() : nullptr;
    documents = nullptr;
    if (by_document) std::swap(mask, documents);
  }
};

}  // namespace ds
