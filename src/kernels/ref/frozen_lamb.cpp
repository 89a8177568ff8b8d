// 1-bit LAMB (Li et al., arXiv:2104.06069) behind its freeze. LAMB's trust ratio needs the second
// moment of today's gradients, which nobody has there. So the mean ratio of the warm-up is
// multiplied by a factor, how much larger the frozen second moment is than one that is kept from
// gradients as momentum tells them: from two momenta the gradient between them follows. Momenta of
// all parameters go as one tensor with one scale, for which each is multiplied by what makes their
// sizes equal (lamb_scales) and divided by it afterwards.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/element_run.h"
#include "core/base/group_scalars.h"
#include "kernels/blocked_sum.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

void scale_momentum(const KernelContext& c) {
  const float *x = c.in[0].as<float>(), scale = *c.in[1].as<float>();
  float* y = c.out[0].as<float>();
  bool inverse = c.attrs.integer("inverse") != 0;
  if (inverse && c.scalars.skip != 0) return;
  for (int64_t e = 0; e < c.in[0].numel(); ++e) y[e] = inverse ? x[e] / scale : x[e] * scale;
}

// f(param, its number among those that have runs, first and last of its runs)
template <typename F>
void for_params(std::span<const ElementRun> runs, const F& f) {
  size_t number = 0;
  for (size_t first = 0, last = 0; first < runs.size(); first = last, ++number) {
    while (last < runs.size() && runs[last].group == runs[first].group) ++last;
    f(runs[first].group, number, first, last);
  }
}

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

void frozen_lamb_moments(const KernelContext& c) {
  double* norms = c.out[1].as<double>();
  if (c.scalars.skip != 0) {
    std::fill_n(norms, c.out[1].numel(), 0.0);
    return;
  }
  const float *before = c.in[0].as<float>(), *m = c.in[1].as<float>(), *v = c.in[2].as<float>(),
              *master = c.in[3].as<float>();
  float* fresh = c.out[0].as<float>();
  const GroupScalars& group = c.scalars.group;
  float b1 = static_cast<float>(group.beta1), one_b1 = static_cast<float>(1 - group.beta1);
  float b2 = static_cast<float>(group.beta2), one_b2 = static_cast<float>(1 - group.beta2);
  float eps = static_cast<float>(group.eps), decay = static_cast<float>(group.weight_decay);
  int64_t granules = c.out[1].numel() / 3,
          granule = c.in[0].numel() / std::max<int64_t>(granules, 1);
  for (int64_t k = 0; k < granules; ++k) {
    double moments = 0, steps = 0, most = 0;
    for (int64_t e = k * granule; e < (k + 1) * granule; ++e) {
      float g = (m[e] - b1 * before[e]) / one_b1;
      fresh[e] = b2 * fresh[e] + one_b2 * (g * g);
      float root = std::sqrt(v[e]) + eps, step = m[e] / root, u = step + decay * master[e];
      moments += static_cast<double>(step) * static_cast<double>(step);
      steps += static_cast<double>(u) * static_cast<double>(u);
      // Padding and what never had a gradient say nothing.
      float factor = v[e] > 0 || fresh[e] > 0 ? root / (std::sqrt(fresh[e]) + eps) : 0.0f;
      most = std::max(most, static_cast<double>(factor));
    }
    norms[3 * k] = moments;
    norms[3 * k + 1] = steps;
    norms[3 * k + 2] = most;
  }
}

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
