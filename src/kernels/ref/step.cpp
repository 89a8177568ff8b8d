// The instructions that decide a step: its loss over all leaves; norm, clipping and whether it is skipped.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "core/program/element_run.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

StepScalars& scalars_of(const KernelContext& c) { return *c.out[0].as<StepScalars>(); }

// Leaves in the order of leaf numbers, micro_step * ranks + rank; each rank gives those of its micro-steps.
void losses(const KernelContext& c) {
  const float* all = c.in[0].as<float>();
  int64_t micros = c.attrs.integer("micros"), ranks = c.in[0].numel() / micros, leaves = 0;
  double sum = 0;
  for (int64_t m = 0; m < micros; ++m) {
    for (int64_t r = 0; r < ranks; ++r) {
      float loss = all[r * micros + m];
      if (std::bit_cast<uint32_t>(loss) == kNoLeaf) continue;
      sum += loss;
      ++leaves;
    }
  }
  scalars_of(c).leaves = leaves;
  scalars_of(c).loss = sum / static_cast<double>(leaves);  // of no leaf: NaN, which skips the update
}

// A sum by blocks of 256, then of the blocks' sums, and so on: an order that a device can follow in parallel.
// Each level holds the sum of its last, unfinished block.
class BlockedSum {
 public:
  void add(double x, size_t level = 0) {
    Level& l = levels_[level];
    l.sum += x;
    if (++l.count == kBlock) carry(level);
  }
  double finish() {
    size_t last = levels_.size() - 1;
    for (size_t level = 0; level < last; ++level) {
      if (levels_[level].count > 0) carry(level);
    }
    return levels_[last].sum;
  }

 private:
  static constexpr int kBlock = 256;
  struct Level {
    double sum = 0;
    int count = 0;
  };
  void carry(size_t level) {
    Level full = std::exchange(levels_[level], {});
    if (level + 1 < levels_.size()) return add(full.sum, level + 1);
    levels_[level].sum = full.sum;  // the highest, which no model fills
  }
  std::array<Level, 5> levels_;  // 2^40 granules
};

// The granules' sums of squares in the order of parameters, in f64.
double sum_of(const KernelContext& c) {
  const double* squares = c.in[0].as<double>();
  const ElementRun whole{0, c.in[0].numel(), 0};
  BlockedSum sum;
  for (const ElementRun& run : c.runs.empty() ? std::span(&whole, 1) : c.runs) {
    for (int64_t i = run.begin; i < run.end; ++i) sum.add(squares[i]);
  }
  return sum.finish();
}

void sum_norms(const KernelContext& c) { *c.out[0].as<double>() = sum_of(c); }

// Norm of the mean gradient or, of gradients that `ranks` ranks have kept to themselves, the root of the mean
// square of their norms.
void clip(const KernelContext& c) {
  StepScalars& scalars = scalars_of(c);
  double leaves = static_cast<double>(std::max<int64_t>(scalars.leaves, 1));
  double norm = std::sqrt(sum_of(c) * static_cast<double>(c.attrs.integer_or("ranks", 1))) / leaves;
  double max_norm = c.attrs.real("max_norm");
  double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  scalars.grad_norm = norm;
  scalars.grad_scale = coefficient / leaves;
  scalars.skip = std::isfinite(norm) && std::isfinite(scalars.loss) ? 0 : 1;
}

}  // namespace

void add_step(KernelRegistry& registry) {
  add_kernel(registry, "losses", losses);
  add_kernel(registry, "sum_norms", sum_norms);
  add_kernel(registry, "clip", clip);
}

}  // namespace ds::ref
