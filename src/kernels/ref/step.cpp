// The instructions that decide a step: its loss over all leaves; norm, clipping and whether it is skipped.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "core/base/element_run.h"
#include "kernels/ref/blocked_sum.h"
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
// square of their norms. What the update multiplies sums by undoes the loss scale, averages and clips at
// once.
void clip(const KernelContext& c) {
  StepScalars& scalars = scalars_of(c);
  double leaves = static_cast<double>(std::max<int64_t>(scalars.leaves, 1));
  double scale = leaves * scalars.loss_scale;
  double norm = std::sqrt(sum_of(c) * static_cast<double>(c.attrs.integer_or("ranks", 1))) / scale;
  double max_norm = c.attrs.real("max_norm");
  double coefficient = max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  scalars.grad_norm = norm;
  scalars.grad_scale = coefficient / scale;
  bool finite = std::isfinite(norm) && std::isfinite(scalars.loss);
  if (c.attrs.integer_or("unchecked", 0) != 0) finite = scalars.leaves > 0;
  scalars.skip = finite ? 0 : 1;
}

// What updates read from here on is the mean gradient, clipped and without a loss scale.
void mean_gradients(const KernelContext& c) { c.out[0].as<StepScalars>()->grad_scale = 1; }

}  // namespace

void add_step(KernelRegistry& registry) {
  add_kernel(registry, "losses", losses);
  add_kernel(registry, "sum_norms", sum_norms);
  add_kernel(registry, "clip", clip);
  add_kernel(registry, "mean_gradients", mean_gradients);
}

}  // namespace ds::ref
