// LAMB is Adam with the step of each parameter multiplied by a trust ratio: the norm of the
// parameter divided by the norm of the step. Both norms are sums over the whole parameter, which
// may be spread over many ranks, so an update takes three instructions. lamb_moments updates the
// moments and stores the sums of squares for both norms, granule by granule. After a gather of
// these sums from all ranks, lamb_ratios adds them up in the order of the parameter's granules,
// which is the same for every layout. lamb applies the step. The step is not stored between
// lamb_moments and lamb: computing it again from the moments costs less than a buffer of its size.
#include "kernels/formulas/lamb.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/element_run.h"
#include "kernels/formulas/blocked_sum.h"
#include "kernels/formulas/skipped.h"
#include "kernels/ref/ref.h"

namespace ds::ref {
namespace {

// Returns the step of an element before the trust ratio is applied: m / (sqrt(v) + eps) + decay p,
// or with eps inside the root.
float lamb_step(const LambStep& s, float p, float m, float v) {
  float root = s.inside ? std::sqrt(v + s.eps) : std::sqrt(v) + s.eps;
  return m / root + s.decay * p;
}

// The operands are grad and master. The results are m, v and norms; norms has two sums of squares
// for each granule, first of the master and then of the step.
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

// Writes the trust ratio of each parameter, clamped to [min_coeff, max_coeff], for each of its
// granules. The operand is norms. The results are means, if 1-bit LAMB needs them, and ratios.
void lamb_ratios(const KernelContext& c) {
  const double* norms = c.in[0].as<double>();
  float* ratios = c.out.back().as<float>();
  // The running mean of each parameter's ratio, which 1-bit LAMB needs. Null for plain LAMB.
  float* means = c.out.size() > 1 ? c.out[0].as<float>() : nullptr;
  std::fill_n(ratios, c.out.back().numel(), 0.0f);
  double least = c.attrs.real("min_coeff"), most = c.attrs.real("max_coeff");
  // The runs of one parameter are adjacent; together they list its granules in order.
  for (size_t first = 0, last = 0; first < c.runs.size(); first = last) {
    BlockedSum param, step;
    for (; last < c.runs.size() && c.runs[last].group == c.runs[first].group; ++last) {
      for (int64_t k = c.runs[last].begin; k < c.runs[last].end; ++k) {
        param.add(norms[2 * k]);
        step.add(norms[2 * k + 1]);
      }
    }
    double p = std::sqrt(param.finish()), u = std::sqrt(step.finish());
    // If all elements of the parameter or of the step are 0, the ratio is 1.
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

// The operands are m, v and ratios; the results are master and param.
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
  add_by_type<out_type<1>>(registry, "lamb", []<typename T>() { return lamb<T>; });
}

}  // namespace ds::ref
