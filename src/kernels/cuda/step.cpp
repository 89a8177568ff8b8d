// The host side of the operations that decide a step (norms, clipping, mean loss), and of the sum
// over ranks. Sums have a fixed order (BlockedSum of kernels/formulas): blocks of 256, then blocks
// of the blocks' sums. If a launch has `runs`, elements are first moved into the order of the runs.
#include "kernels/cuda/step.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "core/base/dtype.h"
#include "core/base/element_run.h"
#include "core/base/round.h"
#include "core/device/view.h"
#include "kernels/cuda/dim3.h"
#include "kernels/cuda/element_args.h"
#include "kernels/cuda/gather.h"
#include "kernels/cuda/granules.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kernel.h"
#include "kernels/cuda/tree_sum.h"
#include "kernels/formulas/muon.h"

namespace ds::cuda {
namespace {

// Launches `entry` for every kPieces runs, whose elements have `width` numbers each. Returns the
// total number of these numbers. blockIdx.y selects the piece, and the x blocks cover the longest
// piece.
int64_t move_runs(Launcher& launcher, const char* entry, GatherArgs a,
                  std::span<const ElementRun> runs, int64_t width, int64_t room) {
  int64_t to = 0, longest = 0;
  const auto flush = [&] {
    const Dim3 grid{std::min(blocks(longest, kThreads), 1024u), static_cast<uint32_t>(a.pieces)};
    start(launcher, entry, grid, {kThreads}, a);
    a.pieces = longest = 0;
  };
  for (const ElementRun& run : runs) {
    const int64_t length = (run.end - run.begin) * width;
    ensure(to + length <= room, "the runs cover more than the {} elements of the operand",
           room / width);
    a.piece[a.pieces++] = {run.begin * width, length, to};
    to += length;
    longest = std::max(longest, length);
    if (a.pieces == kPieces) flush();
  }
  flush();
  return to;
}

}  // namespace

int64_t gather_runs(Launcher& launcher, const double* from, double* to,
                    std::span<const ElementRun> runs, int64_t width, int64_t room) {
  GatherArgs a{};
  a.from = from;
  a.to = to;
  return move_runs(launcher, "gather_sums", a, runs, width, room);
}

void scatter_runs(Launcher& launcher, const float* from, float* to,
                  std::span<const ElementRun> runs) {
  GatherArgs a{};
  a.ordered = from;
  a.placed = to;
  move_runs(launcher, "scatter_runs", a, runs, 1, std::numeric_limits<int64_t>::max());
}

namespace {

using Made = std::unique_ptr<Kernel>;

Made make_granule_norms(const Query& query, std::string* refusal) {
  if (!takes_floats({query.op, query.in, {}, query.attrs}, refusal)) return nullptr;
  return made([](Launcher& launcher, const Arguments& c) {
    const int64_t granules = c.out[0].numel();
    if (granules == 0) return;
    NormsArgs a{operand(c.in[0]), c.out[0].as<double>(), granules, c.in[0].numel() / granules};
    start(launcher, "granule_norms", {blocks(granules, kGranuleThreads)}, {kGranuleThreads}, a,
          kGranuleRoom * sizeof(float));
  });
}

// Returns the bytes of scratch memory that start_sum() needs. Both functions must divide the memory
// in the same way.
int64_t bytes_of_sum(int64_t count) {
  Scratch scratch(nullptr);
  scratch.take<double>(count);
  scratch.take<double>(ceil_div(count, kSumBlock) + 1);
  scratch.take<double>(ceil_div(count, kSumBlock) + 1);
  return scratch.used();
}

// Enqueues the sum of c.in[0] in the order of c.runs. Returns the address of the result. Levels
// alternate between two buffers.
const double* start_sum(Launcher& launcher, const Arguments& c) {
  Scratch scratch(c.scratch);
  const double* from = c.in[0].as<double>();
  int64_t count = c.in[0].numel();
  const int64_t room = ceil_div(count, kSumBlock) + 1;
  double* ordered = scratch.take<double>(count);
  double* sums[2] = {scratch.take<double>(room), scratch.take<double>(room)};
  if (!c.runs.empty()) {
    count = gather_runs(launcher, from, ordered, c.runs, 1, count);
    from = ordered;
  }
  // The first level is computed even if there is only one number, or none.
  for (int turn = 0; turn == 0 || count > 1; turn = 1 + turn % 2) {
    BlockSumsArgs a{from, sums[turn % 2], count};
    count = std::max<int64_t>(ceil_div(count, kSumBlock), 1);
    start(launcher, "block_sums", {blocks(count, kThreads)}, {kThreads}, a);
    from = a.to;
  }
  return from;
}

Made make_sum_norms(const Query& query, std::string*) {
  return made(
      [](Launcher& launcher, const Arguments& c) {
        StepArgs a{};
        a.sum = start_sum(launcher, c);
        a.out = c.out[0].as<double>();
        start(launcher, "sum_norms", {1}, {32}, a);
      },
      bytes_of_sum(query.in[0].numel()));
}

Made make_clip(const Query& query, std::string*) {
  StepArgs a{};
  a.ranks = static_cast<double>(query.attrs.integer_or("ranks", 1));
  a.max_norm = query.attrs.real("max_norm");
  a.unchecked = query.attrs.integer_or("unchecked", 0);
  return made(
      [=](Launcher& launcher, const Arguments& c) {
        StepArgs own = a;
        own.sum = start_sum(launcher, c);
        own.scalars = c.out[0].as<StepScalars>();
        start(launcher, "clip", {1}, {32}, own);
      },
      bytes_of_sum(query.in[0].numel()));
}

// The operand has, for each rank, the losses of its micro-steps and, if there is a unit, as many
// weights.
Made make_losses(const Query& query, std::string*) {
  const int64_t micros = query.attrs.integer("micros"), unit = query.attrs.integer_or("unit", 0);
  return made([=](Launcher& launcher, const Arguments& c) {
    StepArgs a{};
    a.losses = c.in[0].as<float>();
    a.scalars = c.out[0].as<StepScalars>();
    a.micros = micros;
    a.unit = unit;
    a.rank_count = c.in[0].numel() / (unit > 0 ? 2 * micros : micros);
    start(launcher, "losses", {1}, {32}, a);
  });
}

Made make_mean_gradients(const Query&, std::string*) {
  return made([](Launcher& launcher, const Arguments& c) {
    StepArgs a{};
    a.scalars = c.out[0].as<StepScalars>();
    start(launcher, "mean_gradients", {1}, {32}, a);
  });
}

Made make_unit_matrix(const Query& query, std::string*) {
  const double eps = query.attrs.real("eps");
  return made(
      [=](Launcher& launcher, const Arguments& c) {
        UnitArgs a{operand(c.in[0]),
                   operand(c.out[0]),
                   static_cast<double*>(c.scratch),
                   c.in[0].numel(),
                   0,
                   0,
                   0,
                   eps};
        a.piece = unit_piece(a.count);
        a.piece_count = ceil_div(a.count, a.piece);
        a.wide = aligned(c.in[0].data) && aligned(c.out[0].data);
        start(launcher, "unit_pieces", {1}, {64}, a);
        start(launcher, "unit_matrix", {blocks(a.count, kShare * kThreads)}, {kThreads}, a);
      },
      kUnitPieces * static_cast<int64_t>(sizeof(double)));
}

constexpr KernelRow kRows[] = {
    {"unit_matrix", make_unit_matrix},         {"granule_norms", make_granule_norms, Takes::own},
    {"sum_norms", make_sum_norms, Takes::own}, {"clip", make_clip, Takes::own},
    {"losses", make_losses, Takes::own},       {"mean_gradients", make_mean_gradients, Takes::own},
};

}  // namespace

// The number of ranks is limited because the addresses of all parts are in the argument of the
// launch.
void tree_sum(Launcher& launcher, std::span<const void* const> parts, DType from,
              const TensorView& out) {
  TreeSumArgs a{};
  ensure(!parts.empty() && parts.size() <= std::size(a.parts),
         "a sum over ranks must have 1 to {} parts, got {}", std::size(a.parts), parts.size());
  ensure(from == DS_DTYPE_F32 || from == DS_DTYPE_BF16 || from == DS_DTYPE_F16,
         "a sum over ranks supports f32, bf16 and f16, got {}", dtype_name(from));
  if (out.numel() == 0) return;
  a.part.dtype = static_cast<int32_t>(from);
  a.out = operand(out);
  a.count = out.numel();
  a.ranks = static_cast<int64_t>(parts.size());
  a.wide = aligned(out.data);
  for (size_t r = 0; r < parts.size(); ++r) {
    a.parts[r] = parts[r];
    a.wide = a.wide && aligned(parts[r]);
  }
  start(launcher, "tree_sum", {blocks(a.count, kShare * kThreads)}, {kThreads}, a);
}

std::span<const KernelRow> step_rows() { return kRows; }

}  // namespace ds::cuda
