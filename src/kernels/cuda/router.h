#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ds::cuda {

// The argument of the kernels of router.cu, for the rows of one layer, each with logits over
// `experts` experts.
struct RouterArgs {
  // `to` receives the gates or a gradient.
  Operand logits, dy, to;
  // [rows]: rows with 0 are ignored. Null if no row is ignored.
  const int32_t* mask;
  // [rows]: the logarithm of the sum of exp(logit), so that softmax(row)[e] = exp(logit[e] - base).
  double* base;
  // [layers][experts][2]: the number of rows that chose an expert, and the sum of its softmax over
  // the rows.
  double* totals;
  // [experts][2]: element 2 e is the share of the rows that are not ignored, over all layers, that
  // chose expert e.
  double* shares;
  // The number of rows of a layer that are not ignored.
  double* counted;
  const float* dloss;
  float* loss;
  int64_t rows, experts, k, layers, layer;
  int64_t normalize;
};
constexpr uint32_t kRouterThreads = 256;

}  // namespace ds::cuda
