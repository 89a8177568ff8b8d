// 1-bit LAMB (Li et al., arXiv:2104.06069) after its freeze step. LAMB's trust ratio needs the
// second moment of the current gradients, which no rank has any longer. So the mean ratio of the
// warm-up is multiplied by a factor, the ratio of the roots of the frozen second moment and of a
// fresh one. The fresh second moment is updated with gradients that are reconstructed from two
// successive momenta. The momenta of all parameters are sent as one tensor with one scale. Before
// that, each momentum is multiplied by a scale that makes their root mean squares equal
// (lamb_scales); afterwards it is divided by that scale.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/element_run.h"
#include "kernels/formulas/blocked_sum.h"
#include "kernels/formulas/step_factors.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// y = x * scale, or x / scale with `inverse`, which leaves y unchanged in a skipped step.
void scale_momentum(const KernelContext& c) {
  const float *x = c.in[0].as<float>(), scale = *c.in[1].as<float>();
  float* y = c.out[0].as<float>();
  bool inverse = c.attrs.integer("inverse") != 0;
  if (inverse && c.scalars.skip != 0) return;
  for (int64_t e = 0; e < c.in[0].numel(); ++e) y[e] = inverse ? x[e] / scale : x[e] * scale;
}

// Calls f(param, number, first, last) for each parameter that has runs. `number` counts these
// parameters from 0; the parameter's runs, which are adjacent, are runs[first] to runs[last - 1].
template <typename F>
void for_params(std::span<const ElementRun> runs, const F& f) {
  size_t number = 0;
  for (size_t first = 0, last = 0; first < runs.size(); first = last, ++number) {
    while (last < runs.size() && runs[last].group == runs[first].group) ++last;
    f(runs[first].group, number, first, last);
  }
}

// scales[param] = the mean size of all momenta divided by the size of this parameter's momentum,
// where size means root mean square; 1 if the momentum is zero. Sets all factors to 1.
void lamb_scales(const KernelContext& c) {
  const double* norms = c.in[0].as<double>();
  float *scales = c.out[0].as<float>(), *factors = c.out[1].as<float>();
  const std::vector<int64_t>& numels = c.attrs.integers("numels");
  std::vector<double> sizes(numels.size());
  double mean = 0;
  for_params(c.runs, [&](int64_t, size_t number, size_t first, size_t last) {
    BlockedSum sum;
    for (size_t r = first; r < last; ++r) {
      for (int64_t k = c.runs[r].begin; k < c.runs[r].end; ++k) sum.add(norms[k]);
    }
    sizes[number] = std::sqrt(sum.finish() / static_cast<double>(numels[number]));
    mean += sizes[number] / static_cast<double>(numels.size());
  });
  std::fill_n(scales, c.out[0].numel(), 1.0f);
  std::fill_n(factors, c.out[1].numel(), 1.0f);
  for_params(c.runs, [&](int64_t param, size_t number, size_t, size_t) {
    if (sizes[number] > 0) scales[param] = static_cast<float>(mean / sizes[number]);
  });
}

// Updates the fresh second moment and stores three numbers for each granule: the sum of squares of
// the step without decay, the sum of squares of the step with decay, and the largest factor of an
// element.
void frozen_lamb_moments(const KernelContext& c) {
  double* norms = c.out[1].as<double>();
  if (c.scalars.skip != 0) {
    std::fill_n(norms, c.out[1].numel(), 0.0);
    return;
  }
  const float *before = c.in[0].as<float>(), *m = c.in[1].as<float>(), *v = c.in[2].as<float>(),
              *master = c.in[3].as<float>();
  float* fresh = c.out[0].as<float>();
  const StepFactors s(c.scalars);
  int64_t granules = c.out[1].numel() / 3,
          granule = c.in[0].numel() / std::max<int64_t>(granules, 1);
  for (int64_t k = 0; k < granules; ++k) {
    double moments = 0, steps = 0, most = 0;
    for (int64_t e = k * granule; e < (k + 1) * granule; ++e) {
      // Reconstruct the gradient that led from one momentum to the next.
      float g = (m[e] - s.beta1 * before[e]) / s.one_beta1;
      fresh[e] = s.beta2 * fresh[e] + s.one_beta2 * (g * g);
      float root = std::sqrt(v[e]) + s.eps, step = m[e] / root, u = step + s.decay * master[e];
      moments += static_cast<double>(step) * static_cast<double>(step);
      steps += static_cast<double>(u) * static_cast<double>(u);
      // Padding and elements that never had a gradient are left out: their factor is 0.
      float factor = v[e] > 0 || fresh[e] > 0 ? root / (std::sqrt(fresh[e]) + s.eps) : 0.0f;
      most = std::max(most, static_cast<double>(factor));
    }
    norms[3 * k] = moments;
    norms[3 * k + 1] = steps;
    norms[3 * k + 2] = most;
  }
}

// Computes each parameter's factor: the largest factor of its elements, mixed with 1 by the share
// of weight decay in the step, then bounded by factor_min and factor_max, then limited to a
// relative change of factor_threshold per step. The ratio of all granules of a parameter is its
// mean ratio of the warm-up times the factor. In a skipped step, ratios are 0 and factors do not
// change.
void frozen_lamb_ratios(const KernelContext& c) {
  const double* norms = c.in[0].as<double>();
  const float* means = c.in[1].as<float>();
  float *factors = c.out[0].as<float>(), *ratios = c.out[1].as<float>();
  std::fill_n(ratios, c.out[1].numel(), 0.0f);
  if (c.scalars.skip != 0) return;
  double low = c.attrs.real("factor_min"), high = c.attrs.real("factor_max"),
         moves = c.attrs.real("factor_threshold");
  for_params(c.runs, [&](int64_t param, size_t, size_t first, size_t last) {
    BlockedSum moments, steps;
    double most = 0, before = static_cast<double>(factors[param]);
    for (size_t r = first; r < last; ++r) {
      for (int64_t k = c.runs[r].begin; k < c.runs[r].end; ++k) {
        moments.add(norms[3 * k]);
        steps.add(norms[3 * k + 1]);
        most = std::max(most, norms[3 * k + 2]);
      }
    }
    double m = std::sqrt(moments.finish()), u = std::sqrt(steps.finish());
    double share = u > 0 ? std::min(1.0, m / u) : 1.0;
    double factor = most > 0 ? most * share + (1 - share) : 1.0;
    factor = std::clamp(factor, low, high);
    factor = std::max(std::min(factor, before * (1 + moves)), before * (1 - moves));
    factors[param] = static_cast<float>(factor);
    auto ratio = static_cast<float>(static_cast<double>(means[param]) * factor);
    for (size_t r = first; r < last; ++r)
      std::fill(ratios + c.runs[r].begin, ratios + c.runs[r].end, ratio);
  });
}

}  // namespace

void add_frozen_lamb(KernelRegistry& registry) {
  add_kernel(registry, "scale_momentum", scale_momentum);
  add_kernel(registry, "lamb_scales", lamb_scales);
  add_kernel(registry, "frozen_lamb_moments", frozen_lamb_moments);
  add_kernel(registry, "frozen_lamb_ratios", frozen_lamb_ratios);
}

}  // namespace ds::ref
