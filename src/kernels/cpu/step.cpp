// The norm of a gradient, bit-identical to the reference. It is the root of a sum of one number for
// each granule of 256 elements: six million numbers for a model of 1.5 billion parameters, added in
// blocks of blocks (docs/adr/0027). If the optimizer runs on the host, nothing else runs in the
// meantime. So the threads share the work: each sums whole pieces of 256 blocks of 256 numbers, in
// order. Then the sums of the pieces are added in order, followed by the numbers after the last
// whole piece.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/base/element_run.h"
#include "kernels/cpu/cpu.h"
#include "kernels/formulas/blocked_sum.h"
#include "kernels/formulas/clip.h"

namespace ds::cpu {
namespace {

constexpr int64_t kPiece = int64_t{BlockedSum::kBlock} * BlockedSum::kBlock;
// The level of BlockedSum on which the sum of a piece is one term.
constexpr size_t kLevel = 2;
// The number of pieces that are summed at a time, so that their sums fit on the stack.
constexpr int64_t kAtOnce = 64;

// Adds numbers [begin, end) to `sum`. Numbers are counted through all runs, one run after the
// other.
void add_range(std::span<const ElementRun> runs, const double* squares, int64_t begin, int64_t end,
               BlockedSum& sum) {
  // The index of the run's first number among the numbers of all runs.
  int64_t first = 0;
  for (const ElementRun& run : runs) {
    const int64_t from = std::max(begin - first, int64_t{0}),
                  to = std::min(end - first, run.end - run.begin);
    for (int64_t i = from; i < to; ++i) sum.add(squares[run.begin + i]);
    first += run.end - run.begin;
    if (first >= end) return;
  }
}

double sum_of(const KernelContext& c) {
  const double* squares = c.in[0].as<double>();
  const ElementRun whole{0, c.in[0].numel()};
  const std::span<const ElementRun> runs = c.runs.empty() ? std::span(&whole, 1) : c.runs;
  int64_t count = 0;
  for (const ElementRun& run : runs) count += run.end - run.begin;
  const int64_t pieces = count / kPiece;
  BlockedSum sum;
  for (int64_t at = 0; at < pieces; at += kAtOnce) {
    std::array<double, kAtOnce> sums;
    const int64_t some = std::min(kAtOnce, pieces - at);
    for_tasks(c.team, some, [&](int64_t k, int) {
      BlockedSum piece;
      add_range(runs, squares, (at + k) * kPiece, (at + k + 1) * kPiece, piece);
      sums[static_cast<size_t>(k)] = piece.finish();
    });
    for (int64_t k = 0; k < some; ++k) sum.add(sums[static_cast<size_t>(k)], kLevel);
  }
  add_range(runs, squares, pieces * kPiece, count, sum);
  return sum.finish();
}

void sum_norms(const KernelContext& c) { *c.out[0].as<double>() = sum_of(c); }
void clip(const KernelContext& c) { clip_by(c, sum_of(c)); }

}  // namespace

void add_step(KernelRegistry& registry) {
  add_kernel(registry, "sum_norms", sum_norms);
  add_kernel(registry, "clip", clip);
}

}  // namespace ds::cpu
