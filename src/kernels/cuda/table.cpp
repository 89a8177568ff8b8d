// The host side of operations on tables whose rows are selected by ids.
#include "kernels/cuda/table.h"

#include <fmt/core.h>

#include <array>
#include <memory>
#include <span>
#include <string>

#include "core/base/dtype.h"
#include "core/device/view.h"
#include "core/program/rows.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"
#include "kernels/formulas/rank_order.h"

namespace ds::cuda {
namespace {

using Made = std::unique_ptr<Kernel>;

// Enqueues y[r] = w[ids[r]]. Rows are copied in units of 16 bytes if their size and both addresses
// are multiples of 16, otherwise of 2 bytes.
void start_lookup(Launcher& launcher, const TensorView& w, const int32_t* ids, int64_t rows,
                  void* y) {
  const int64_t bytes = w.dims[1] * size_of(w.dtype);
  const bool wide = bytes % 16 == 0 && aligned(w.data) && aligned(y);
  LookupArgs a{w.data, ids, y, rows, bytes / (wide ? 16 : 2), w.dims[0], wide ? 16 : 2};
  start(launcher, "lookup", {blocks(a.rows * a.units, kThreads)}, {kThreads}, a);
}

Made make_embedding(const Query&, std::string*) {
  return made([](Launcher& launcher, const Arguments& c) {
    start_lookup(launcher, c.in[0], c.in[1].as<int32_t>(), c.in[1].dims[0], c.out[0].data);
  });
}

Made make_embedding_dw(const Query& query, std::string*) {
  const int64_t padding = query.attrs.integer_or("padding", -1);
  return made([=](Launcher& launcher, const Arguments& c) {
    EmbeddingDwArgs a{operand(c.in[0]), operand(c.out[0]), c.in[1].as<int32_t>(),
                      c.in[0].dims[0],  c.in[0].dims[1],   c.out[0].dims[0],
                      padding};
    // Shared memory holds the sums, the rows and words of the list, and two buffers for the counts
    // of the warps.
    const uint32_t shared =
        (kSliceWords * kSliceThreads + 2 * kListed + 2 * kSliceThreads / 32) * sizeof(float);
    start(launcher, "embedding_dw", {blocks(a.words, kSliceWords), blocks(a.width, kSliceThreads)},
          {kSliceThreads}, a, shared);
  });
}

Made make_position_dw(const Query& query, std::string*) {
  const int64_t seq = query.attrs.integer("seq");
  return made([=](Launcher& launcher, const Arguments& c) {
    PositionDwArgs a{operand(c.in[0]), operand(c.out[0]), c.in[0].dims[0],
                     c.in[0].dims[1],  c.out[0].dims[0],  seq};
    start(launcher, "position_dw", {blocks(a.places * a.width, kThreads)}, {kThreads}, a);
  });
}

Made make_pack_rows(const Query& query, std::string*) {
  return made(
      [](Launcher& launcher, const Arguments& c) {
        PackArgs a{c.in[1].as<int32_t>(),
                   c.out[1].as<int32_t>(),
                   static_cast<uint8_t*>(c.scratch),
                   c.scalars,
                   c.in[1].numel(),
                   c.in[0].dims[0],
                   c.out[1].numel()};
        // There is one byte for each word. All bytes are cleared, the bytes of the words in ids are
        // set, and these words are listed. Then the rows of the listed words are copied.
        copy_bytes(launcher, nullptr, a.named, a.words);
        start(launcher, "mark_ids", {blocks(a.count, kThreads)}, {kThreads}, a);
        start(launcher, "list_ids", {1}, {kPackThreads}, a, kPackThreads / 32 * sizeof(unsigned));
        start_lookup(launcher, c.in[0], a.numbers, a.room, c.out[0].data);
      },
      query.in[0].dims[0]);
}

Made make_sum_rows(const Query& query, std::string* refusal) {
  SumRowsArgs a{};
  a.ranks = query.attrs.integer("ranks");
  a.first = query.attrs.integer("first");
  // The number of ranks is limited because their places are in the argument of the launch.
  if (a.ranks > static_cast<int64_t>(std::size(a.place))) {
    *refusal = fmt::format("ranks is {}, but the device can sum the rows of at most {} ranks",
                           a.ranks, std::size(a.place));
    return nullptr;
  }
  const RankOrder order(query.attrs);
  for (int64_t r = 0; r < a.ranks; ++r) a.place[r] = static_cast<uint16_t>(order.place(r));
  return made([=](Launcher& launcher, const Arguments& c) {
    SumRowsArgs own = a;
    own.rows = operand(c.in[0]);
    own.y = operand(c.out[0]);
    own.numbers = c.in[1].as<int32_t>();
    own.count = c.out[0].numel();
    own.width = c.in[0].dims[1];
    own.room = c.in[1].numel() / a.ranks;
    start(launcher, "sum_rows", {blocks(own.count, kThreads)}, {kThreads}, own);
  });
}

constexpr KernelRow kRows[] = {
    {"embedding", make_embedding},     {"embedding_dw", make_embedding_dw},
    {"position_dw", make_position_dw}, {"pack_rows", make_pack_rows},
    {"sum_rows", make_sum_rows},
};

}  // namespace

std::span<const KernelRow> table_rows() { return kRows; }

}  // namespace ds::cuda
