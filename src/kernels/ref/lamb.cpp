// LAMB is Adam whose step of each parameter is scaled by the ratio of two norms, that of the
// parameter and that of the step. Both are sums over all of the parameter, which may lie on many
// ranks, so that an update is three instructions: lamb_moments renews the moments and leaves the
// squares of both norms for each granule; lamb_ratios, behind a gather of those of all ranks, adds
// them up in the order of the parameter, which no layout changes; lamb makes the step. The step is
// not kept between the first and the last: it is computed again from the moments, which costs less
// than a buffer of its size.
#include "kernels/lamb.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/element_run.h"
#include "kernels/blocked_sum.h"
#include "kernels/ref/ref.h"
#include "kernels/skipped.h"

namespace ds::ref {
namespace {

float lamb_step(const LambStep& s, float p, float m, float v) {
  float root = s.inside ? std::sqrt(v + s.eps) : std::sqrt(v) + s.eps;
  return m / root + s.decay * p;
}

void lamb_moments(const KernelContext& c) {
  double* norms = c.out[2].as<double>();
  if (c.scalars.skip != 0) {
    std::fill_n(norms, c.out[2].numel(), 0.0);
    return;
  }
  const float *grad = c.in[0].as<float>(), *master = c.in[1].as<float>();
  float *m = c.out[0].as<float>(), *v = c.out[1].as<float>();
  const LambStep s(c.scalars, c.attrs);
  int64_t granules = c.out[2].numel() / 2,
          granule = c.in[0].numel() / std::max<int64_t>(granules, 1);
  for (int64_t k = 0; k < granules; ++k) {
    double param = 0, step = 0;
    for (int64_t e = k * granule; e < (k + 1) * granule; ++e) {
      float g = grad[e] * s.grad_scale;
      m[e] = s.beta1 * m[e] + s.one_beta1 * g;
      v[e] = s.beta2 * v[e] + s.one_beta2 * (g * g);
      double p = static_cast<double>(master[e]),
             u = static_cast<double>(lamb_step(s, master[e], m[e], v[e]));
      param += p * p;
      step += u * u;
    }
    norms[2 * k] = param;
    norms[2 * k + 1] = step;
  }
}

void lamb_ratios(const KernelContext& c) {
  const double* norms = c.in[0].as<double>();
  float* ratios = c.out.back().as<float>();
  float* means = c.out.size() > 1 ? c.out[0].as<float>() : nullptr;  // of each parameter's ratios
  std::fill_n(ratios, c.out.back().numel(), 0.0f);
  double least = c.attrs.real("min_coeff"), most = c.attrs.real("max_coeff");
  for (size_t first = 0, last = 0; first < c.runs.size(); first = last) {
    BlockedSum param, step;
    for (; last < c.runs.size() && c.runs[last].group == c.runs[first].group; ++last) {
      for (int64_t k = c.runs[last].begin; k < c.runs[last].end; ++k) {
        param.add(norms[2 * k]);
        step.add(norms[2 * k + 1]);
      }
    }
    double p = std::sqrt(param.finish()), u = std::sqrt(step.finish());
    float ratio = p > 0 && u > 0 ? static_cast<float>(std::clamp(p / u, least, most)) : 1.0f;
    if (means && ratio != 1) {
      double beta = c.attrs.real("coeff_beta");
      float& mean = means[c.runs[first].group];
      mean = static_cast<float>(beta * static_cast<double>(mean) +
                                (1 - beta) * static_cast<double>(ratio));
    }
    for (size_t r = first; r < last; ++r)
      std::fill(ratios + c.runs[r].begin, ratios + c.runs[r].end, ratio);
  }
}

template <typename T>
void lamb(const KernelContext& c) {
  if (c.scalars.skip != 0) return skip_update(c);
  const float *m = c.in[0].as<float>(), *v = c.in[1].as<float>(), *ratios = c.in[2].as<float>();
  float* master = c.out[0].as<float>();
  T* param = c.out[1].as<T>();
  const LambStep s(c.scalars, c.attrs);
  int64_t granules = c.in[2].numel(), granule = c.in[0].numel() / std::max<int64_t>(granules, 1);
  for (int64_t k = 0; k < granules; ++k) {
    float rate = s.rate * ratios[k];
    for (int64_t e = k * granule; e < (k + 1) * granule; ++e) {
      master[e] = master[e] - rate * lamb_step(s, master[e], m[e], v[e]);
      param[e] = static_cast<T>(master[e]);
    }
  }
}

}  // namespace

void add_lamb(KernelRegistry& registry) {
  add_kernel(registry, "lamb_moments", lamb_moments);
  add_kernel(registry, "lamb_ratios", lamb_ratios);
  add_kernel(registry, "lamb", [](const KernelContext& c) {
    by_type(c.out[1].dtype, [&](auto t) { lamb<decltype(t)>(c); });
  });
}

}  // namespace ds::ref
