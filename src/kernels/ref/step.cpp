// The instructions between the gradients of a step and its update: they compute the loss over all
// leaves and the gradient norm, clip, and decide whether the step is skipped.
#include <bit>
#include <cstdint>
#include <span>

#include "core/base/element_run.h"
#include "kernels/formulas/blocked_sum.h"
#include "kernels/formulas/clip.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

StepScalars& scalars_of(const KernelContext& c) { return *c.out[0].as<StepScalars>(); }

// Computes the weighted mean of the leaves' losses, the number of leaves and the sum of their
// weights. Leaves are added in the order of their indices, micro_step * ranks + rank. Each rank
// passes the losses of its micro-steps, followed by their weights if attribute `unit` is positive;
// otherwise all weights are 1. The sum of weights is stored in multiples of `unit`. The loss of a
// leaf with weight 0 has no meaning and is left out.
void losses(const KernelContext& c) {
  const float* all = c.in[0].as<float>();
  const int64_t micros = c.attrs.integer("micros"), unit = c.attrs.integer_or("unit", 0);
  const int64_t own = unit > 0 ? 2 * micros : micros, ranks = c.in[0].numel() / own;
  int64_t leaves = 0;
  double sum = 0, weights = 0;
  for (int64_t m = 0; m < micros; ++m) {
    for (int64_t r = 0; r < ranks; ++r) {
      const float loss = all[r * own + m];
      // A rank without data has no leaf in this micro-step.
      if (std::bit_cast<uint32_t>(loss) == kNoLeaf) continue;
      ++leaves;
      const double weight = unit > 0 ? static_cast<double>(all[r * own + micros + m]) : 1.0;
      if (weight == 0) continue;
      sum += weight * static_cast<double>(loss);
      weights += weight;
    }
  }
  StepScalars& scalars = scalars_of(c);
  scalars.leaves = leaves;
  // If all weights are 0, the loss is NaN, and the update is skipped.
  scalars.loss = sum / weights;
  scalars.weight = unit > 0 ? weights / static_cast<double>(unit) : weights;
}

// Returns the sum of the granules' squares in the order of parameters, in f64.
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

void clip(const KernelContext& c) { clip_by(c, sum_of(c)); }

// Sets grad_scale to 1, because from here on the gradients are means, already clipped and divided
// by the loss scale.
void mean_gradients(const KernelContext& c) { c.out[0].as<StepScalars>()->grad_scale = 1; }

}  // namespace

void add_step(KernelRegistry& registry) {
  add_kernel(registry, "losses", losses);
  add_kernel(registry, "sum_norms", sum_norms);
  add_kernel(registry, "clip", clip);
  add_kernel(registry, "mean_gradients", mean_gradients);
}

}  // namespace ds::ref
