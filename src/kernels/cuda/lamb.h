#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"
#include "kernels/cuda/update_constants.h"

namespace ds::cuda {

// The argument of lamb_moments, lamb_norms and lamb; each kernel uses some of the fields.
struct LambArgs {
  Operand grad, master, m, v, param;
  // Two values for each granule: the sum of squares of the parameter, and the sum of squares of the
  // step.
  double* norms;
  // The trust ratio of each granule.
  const float* ratios;
  const UpdateConstants* constants;
  int64_t count, granules, granule;
  int32_t wide;
  // 1 if eps is added inside the square root.
  int32_t inside;
  // 1 if `param` is the master itself and need not be written.
  int32_t same;
};

// The granules of one parameter: `count` granules from `begin` on, in the order in which their
// norms are added. `number` is the parameter's index in RatiosArgs::means.
struct LambGroup {
  int64_t begin, count, number;
};
constexpr int kLambGroups = 64;
constexpr uint32_t kRatioThreads = 256;
// The argument of the kernels that compute the ratio of each parameter, for up to kLambGroups
// parameters.
struct RatiosArgs {
  // Pairs as in LambArgs::norms, in the order of groups.
  const double* norms;
  // Two buffers for the sums of blocks of 256 values, of all groups. The sums of group g begin at
  // index begin / 256 + g, so that groups never overlap.
  double* sums[2];
  // The ratios of the granules, in the order of groups.
  float* ordered;
  // The running mean of each parameter's ratio. Null if running means are not kept.
  float* means;
  double least, most, beta;
  // The index of the first group of this launch.
  int64_t first;
  int64_t groups;
  LambGroup group[kLambGroups];
};

}  // namespace ds::cuda
