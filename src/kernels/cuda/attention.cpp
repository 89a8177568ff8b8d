// The host side of attention: selects the entries for a query, finds q, k and v in its operands,
// and computes how much shared and scratch memory a launch needs. The table kEntries is in order of
// preference: entries on tensor cores, for 16-bit operands, come first. Among these, entries for
// narrow heads come before entries for wide heads, and entries without dropout and cap come before
// entries that support them.
#include "kernels/cuda/attention.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <ranges>
#include <span>
#include <string>

#include "core/base/attrs.h"
#include "core/base/dtype.h"
#include "core/base/round.h"
#include "core/device/view.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"
#include "kernels/formulas/attention_shape.h"
#include "kernels/formulas/cached_attention.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

// The entries (forward, and the two passes of backward) for heads of at most `depth` columns.
// Entries of type f32 accept operands of any type. Entries of a 16-bit type run on tensor cores and
// require that all operands other than masks have this type; they support dropout and a cap only if
// `any` is set.
struct Entries {
  DType type;
  bool any;
  int64_t depth;
  const char *forward, *queries, *keys;

  // Return the number of queries, and of keys, of a block.
  constexpr int64_t queries_tile() const {
    return type == DS_DTYPE_F32 ? kTile : kMmaTile * strips_of(depth);
  }
  constexpr int64_t keys_tile() const { return type == DS_DTYPE_F32 ? kTile : kMmaTile; }
  constexpr uint32_t forward_bytes(int64_t columns) const {
    return type == DS_DTYPE_F32 ? plain_bytes(columns, 3, 1)
                                : mma_bytes(strips_of(depth), queries_tile());
  }
  constexpr uint32_t queries_bytes(int64_t columns) const {
    return type == DS_DTYPE_F32 ? plain_bytes(columns, 4, 1)
                                : mma_bytes(2 * strips_of(depth), queries_tile());
  }
  constexpr uint32_t keys_bytes(int64_t columns) const {
    return type == DS_DTYPE_F32
               ? plain_bytes(columns, 4, 2)
               : mma_bytes(2, kMmaTile) + 2 * kMmaTile * kOfQueryFloats * uint32_t{sizeof(float)};
  }

 private:
  // Returns the bytes of shared memory of attention.cu: `tiles` f32 tiles with a pitch of columns +
  // 1, and `weights` tiles of one value for each pair of a query and a key.
  static constexpr uint32_t plain_bytes(int64_t columns, int64_t tiles, int64_t weights) {
    return static_cast<uint32_t>((tiles * kTile * (columns + 1) + weights * kTile * (kTile + 1)) *
                                 int64_t{sizeof(float)});
  }
  // Returns the bytes of shared memory of attention_mma.cu: `own` tiles of the block and two stages
  // of two tiles, all with the entry's `depth` columns, and in each stage the dropout masks of
  // `rows` queries.
  constexpr uint32_t mma_bytes(int64_t own, int64_t rows) const {
    return static_cast<uint32_t>((own + 4) * kMmaTile * mma_pitch(depth) *
                                     int64_t{sizeof(uint16_t)} +
                                 2 * rows * int64_t{sizeof(uint64_t)});
  }
};
constexpr Entries kEntries[] = {
    {DS_DTYPE_BF16, false, 64, "attention_bf16_64", "attention_dq_bf16_64",
     "attention_dkv_bf16_64"},
    {DS_DTYPE_BF16, true, 64, "attention_bf16_64_any", "attention_dq_bf16_64_any",
     "attention_dkv_bf16_64_any"},
    {DS_DTYPE_BF16, false, 128, "attention_bf16_128", "attention_dq_bf16_128",
     "attention_dkv_bf16_128"},
    {DS_DTYPE_BF16, true, 128, "attention_bf16_128_any", "attention_dq_bf16_128_any",
     "attention_dkv_bf16_128_any"},
    {DS_DTYPE_F16, false, 64, "attention_f16_64", "attention_dq_f16_64", "attention_dkv_f16_64"},
    {DS_DTYPE_F16, true, 64, "attention_f16_64_any", "attention_dq_f16_64_any",
     "attention_dkv_f16_64_any"},
    {DS_DTYPE_F16, false, 128, "attention_f16_128", "attention_dq_f16_128",
     "attention_dkv_f16_128"},
    {DS_DTYPE_F16, true, 128, "attention_f16_128_any", "attention_dq_f16_128_any",
     "attention_dkv_f16_128_any"},
    {DS_DTYPE_F32, true, 64, "attention_64", "attention_dq_64", "attention_dkv_64"},
    {DS_DTYPE_F32, true, 128, "attention_128", "attention_dq_128", "attention_dkv_128"},
    {DS_DTYPE_F32, true, 256, "attention_256", "attention_dq_256", "attention_dkv_256"}};

// The bytes of shared memory that a block can have on every GPU from sm_80 on. Heads of more than
// 128 columns may need more, which sm_80 and sm_90 have.
constexpr uint32_t kLeastShared = 99 << 10;
constexpr bool fits(const Entries& e) {
  return e.depth > 128 ||
         (e.forward_bytes(e.depth) <= kLeastShared && e.queries_bytes(e.depth) <= kLeastShared &&
          e.keys_bytes(e.depth) <= kLeastShared);
}
static_assert(std::ranges::all_of(kEntries, fits));

// The entries on tensor cores store indices of rows, and of elements of a row, in 32 bits.
constexpr int64_t kMostMmaExtent = int64_t{1} << 30;

std::string too_wide(int64_t depth) {
  return fmt::format("heads have {} columns, but the device's attention supports at most 256",
                     depth);
}

// Returns the first entries of the table for heads of this depth, and for dropout or a cap if `any`
// is set. Entries on tensor cores require that all operands except masks have the same type and
// that every extent is below kMostMmaExtent. Returns null with a reason if the heads are too wide.
const Entries* entries_of(std::span<const TensorView> operands, int64_t depth, bool any,
                          std::string* refusal) {
  const DType type = operands[0].dtype;
  const bool mma = std::ranges::all_of(operands, [&](const TensorView& view) {
    return (view.dtype == type || view.dtype == DS_DTYPE_I32) &&
           std::ranges::all_of(view.dims, [](int64_t extent) { return extent < kMostMmaExtent; });
  });
  for (const Entries& e : kEntries) {
    if (depth <= e.depth && (e.any || !any) && (e.type == DS_DTYPE_F32 || (mma && e.type == type)))
      return &e;
  }
  *refusal = too_wide(depth);
  return nullptr;
}

// Returns whether a block can have this much shared memory on the device. If not, sets *refusal to
// the reason why heads of this depth are refused.
bool has_room(const Query& query, int64_t depth, uint32_t bytes, std::string* refusal) {
  if (bytes <= query.shared_bytes) return true;
  *refusal = fmt::format(
      "heads of {} columns need {} bytes of shared memory per block, but the device has {}", depth,
      bytes, query.shared_bytes);
  return false;
}

// The entries of cached attention, and the largest depth of each.
constexpr int64_t kDepths[] = {64, 128, 256};
constexpr const char* kParts[] = {"cached_part_64", "cached_part_128", "cached_part_256"};

// Returns the heads of q, k or v (or of a gradient) at `place` in `views`.
Heads heads_at(std::span<const TensorView> views, const HeadPlace& place) {
  Operand o = operand(views[place.operand]);
  o.data = static_cast<std::byte*>(o.data) + place.start * size_of(views[place.operand].dtype);
  return {o, place.row, place.head};
}

// The shape and attributes of an attention. It is computed once for the query; each launch binds
// its operands to a copy (args()).
struct Shape : AttentionShape {
  double dropout;
  uint32_t op;

  Shape(std::span<const TensorView> in, const Attrs& attrs)
      : AttentionShape(in, attrs),
        dropout(attrs.real_or("dropout", 0)),
        op(static_cast<uint32_t>(attrs.integer_or("op", 0))) {}

  bool any() const { return cap != 0 || dropout != 0; }

  AttentionArgs args(const Arguments& c, std::span<const TensorView> in) const {
    Shape own = *this;
    own.bind(in);
    AttentionArgs a{};
    a.q = heads_at(in, part_place(0));
    a.k = heads_at(in, part_place(1));
    a.v = heads_at(in, part_place(2));
    a.mask = own.mask, a.first = own.documents;
    a.scalars = c.scalars;
    // A sequence longer than the batch ends with the batch, and a window as long as the sequence
    // has no effect. The random stream keeps the length of the attribute, so that random words do
    // not depend on the batch.
    a.rows = own.rows, a.seq = std::min(seq, std::max(a.rows, int64_t{1}));
    a.window = window < a.seq ? window : 0;
    a.words = round_up(seq, int64_t{64});
    a.leaf = c.leaf;
    a.heads = static_cast<int32_t>(heads), a.group = static_cast<int32_t>(group);
    a.depth = static_cast<int32_t>(depth), a.causal = causal;
    a.scale = static_cast<float>(scale);
    a.cap = static_cast<float>(cap);
    a.share = static_cast<float>(dropout), a.factor = static_cast<float>(1 / (1 - dropout));
    a.op = op;
    return a;
  }
};

Heads rows_of(const TensorView& y, int64_t depth) { return {operand(y), y.dims[1], depth}; }

Made make_attention(const Query& query, std::string* refusal) {
  const Shape shape(query.in, query.attrs);
  const int64_t depth = shape.depth;
  const Entries* const entries = entries_of(query.in, depth, shape.any(), refusal);
  if (!entries || !has_room(query, depth, entries->forward_bytes(depth), refusal)) return nullptr;
  return made([=](Launcher& launcher, const Arguments& c) {
    AttentionArgs a = shape.args(c, c.in);
    a.y = rows_of(c.out[0], a.depth);
    a.lse = c.out[1].as<float>();
    start(launcher, entries->forward,
          {blocks(a.rows, entries->queries_tile()), static_cast<uint32_t>(a.heads)},
          {kAttentionThreads}, a, entries->forward_bytes(a.depth));
  });
}

// Returns the operands of attention among those of attention_dx, which are dy, the operands of
// attention, y and lse.
std::span<const TensorView> operands_of_dx(std::span<const TensorView> in) {
  return in.subspan(1, in.size() - 3);
}

// Allocates scratch memory for the values that backward first computes for each query, in the form
// that the entries read. `plain` entries do not use tensor cores.
void take_scratch(Scratch& scratch, bool plain, AttentionArgs& a) {
  const int64_t pairs = a.rows * a.heads;
  if (plain) {
    a.delta = scratch.take<float>(pairs);
    a.alone = scratch.take<uint8_t>(a.rows);
  } else {
    a.queries = scratch.take<float>(pairs * kOfQueryFloats);
  }
}

Made make_attention_dx(const Query& query, std::string* refusal) {
  const Shape shape(operands_of_dx(query.in), query.attrs);
  // The operands without y and lse: lse is always f32 and must not prevent the use of tensor cores.
  std::span<const TensorView> without_stats = query.in.first(query.in.size() - 2);
  const int64_t depth = shape.depth;
  const Entries* const entries = entries_of(without_stats, depth, shape.any(), refusal);
  if (!entries) return nullptr;
  const uint32_t most = std::max(entries->queries_bytes(depth), entries->keys_bytes(depth));
  if (!has_room(query, depth, most, refusal)) return nullptr;
  const bool plain = entries->type == DS_DTYPE_F32;
  AttentionArgs sized{};
  sized.rows = query.in[0].dims[0], sized.heads = static_cast<int32_t>(shape.heads);
  Scratch room(nullptr);
  take_scratch(room, plain, sized);
  return made(
      [=](Launcher& launcher, const Arguments& c) {
        std::span<const TensorView> in = operands_of_dx(c.in), stats = c.in.last(2);
        AttentionArgs a = shape.args(c, in);
        a.dy = rows_of(c.in[0], a.depth);
        a.y = rows_of(stats[0], a.depth);
        a.lse = stats[1].as<float>();
        a.dq = heads_at(c.out, shape.part_place(0));
        a.dk = heads_at(c.out, shape.part_place(1));
        a.dv = heads_at(c.out, shape.part_place(2));
        Scratch scratch(c.scratch);
        take_scratch(scratch, plain, a);
        if (plain) {
          start(launcher, "attention_delta", {blocks(a.rows * a.heads, kDeltaThreads)},
                {kDeltaThreads}, a, kDeltaRoom);
        } else {
          start(launcher, "attention_queries_mma",
                {blocks(a.rows * delta_lanes(a.depth), kDeltaThreads),
                 static_cast<uint32_t>(a.heads)},
                {kDeltaThreads}, a);
        }
        start(launcher, entries->queries,
              {blocks(a.rows, entries->queries_tile()), static_cast<uint32_t>(a.heads)},
              {kAttentionThreads}, a, entries->queries_bytes(a.depth));
        start(launcher, entries->keys,
              {blocks(a.rows, entries->keys_tile()), static_cast<uint32_t>(shape.groups)},
              {kAttentionThreads}, a, entries->keys_bytes(a.depth));
      },
      room.used());
}

// A cache is divided into parts of at least kPartKeys keys. There are at most kMostParts parts,
// which bounds the scratch memory. The division depends on the capacity, not on the present number
// of keys, so that bits do not depend on the length of the text.
constexpr int64_t kPartKeys = 512, kMostParts = 16;
int64_t part_keys(int64_t capacity) {
  const int64_t step = kWarpKeys * int64_t{kCachedWarps};
  return std::max(kPartKeys, round_up(ceil_div(capacity, kMostParts), step));
}

Made make_cached_attention(const Query& query, std::string* refusal) {
  const CachedAttention bound(query.in, query.attrs);
  const auto* const entry = std::ranges::lower_bound(kDepths, bound.depth);
  if (entry == std::end(kDepths)) {
    *refusal = too_wide(bound.depth);
    return nullptr;
  }
  const char* const part_entry = kParts[entry - std::begin(kDepths)];
  const int64_t share = part_keys(bound.capacity), parts = ceil_div(bound.capacity, share);
  Scratch room(nullptr);
  room.take<float>(bound.rows * bound.heads * parts * (bound.depth + 2));
  return made(
      [=, attrs = query.attrs](Launcher& launcher, const Arguments& c) {
        const CachedAttention shape(c.in, attrs);
        const TensorView& cache = c.out[1];
        // Unless the result's cache is the same memory as the operand's, it is first set to a copy.
        if (c.in.back().data != cache.data)
          copy_bytes(launcher, c.in.back().data, cache.data, cache.bytes());
        CachedArgs a{};
        a.q = heads_at(c.in, shape.place[0]);
        a.k = heads_at(c.in, shape.place[1]);
        a.v = heads_at(c.in, shape.place[2]);
        a.y = rows_of(c.out[0], shape.depth);
        a.cache = operand(cache);
        a.positions = shape.positions;
        a.parts = static_cast<float*>(c.scratch);
        a.rows = shape.rows, a.capacity = shape.capacity, a.window = shape.window;
        a.share = share, a.most_parts = parts;
        a.heads = static_cast<int32_t>(shape.heads), a.group = static_cast<int32_t>(shape.group);
        a.groups = static_cast<int32_t>(shape.groups), a.depth = static_cast<int32_t>(shape.depth);
        a.scale = static_cast<float>(shape.scale), a.cap = static_cast<float>(shape.softcap);
        const int64_t stored = a.rows * shape.groups * shape.depth,
                      made = a.rows * shape.heads * shape.depth;
        start(launcher, "cache_rows", {blocks(stored, kThreads)}, {kThreads}, a);
        start(launcher, part_entry,
              {static_cast<uint32_t>(a.rows), static_cast<uint32_t>(a.heads),
               static_cast<uint32_t>(parts)},
              {kCachedWarps * 32}, a,
              kCachedWarps * static_cast<uint32_t>((shape.depth + 2) * int64_t{sizeof(float)}));
        start(launcher, "cached_join", {blocks(made, kThreads)}, {kThreads}, a);
      },
      room.used());
}

constexpr KernelRow kRows[] = {{"attention", make_attention},
                               {"attention_dx", make_attention_dx},
                               {"cached_attention", make_cached_attention}};

}  // namespace

std::span<const KernelRow> attention_rows() { return kRows; }

}  // namespace ds::cuda
