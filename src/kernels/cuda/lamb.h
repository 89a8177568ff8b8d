#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"
#include "kernels/cuda/update_constants.h"

namespace ds::cuda {

struct LambArgs {
  Operand grad, master, m, v, param;
  double* norms;        // of a granule: squares of the parameter, squares of the step
  const float* ratios;  // of a granule
  const UpdateConstants* constants;
  int64_t count, granules, granule;
  int32_t wide;
  int32_t inside;  // eps is added below the root
  int32_t same;    // param is the master
};

// Granules of one parameter, in the order in which their norms are added.
struct LambGroup {
  int64_t begin, count, number;
};
constexpr int kLambGroups = 64;
constexpr uint32_t kRatioThreads = 256;
struct RatiosArgs {
  const double* norms;  // pairs in the order of groups
  double* sums[2];  // room for the blocks' sums of all groups, of which that of granule i is at i /
                    // 256 + group
  float* ordered;   // ratios in the order of groups
  float* means;     // of each parameter's ratios; null: they are not kept
  double least, most, beta;
  int64_t first;  // number of the first group
  int64_t groups;
  LambGroup group[kLambGroups];
};

}  // namespace ds::cuda
