#pragma once
#include <cstdint>

#include "kernels/cuda/operand.h"

namespace ds::cuda {

// Of the entries of router.cu: rows of logits of `experts`, of one layer.
struct RouterArgs {
  Operand logits, dy, to;  // to: gates, or a gradient
  const int32_t* mask;     // rows of 0 do not count; null: all do
  double* base;            // [rows]: softmax(row)[e] is exp(logit - base)
  double* totals;          // [layers][experts][2]: rows that chose an expert, sum of its softmax
  double* shares;          // [experts][2]: of all layers
  double* counted;         // rows of a layer that count
  const float* dloss;
  float* loss;
  int64_t rows, experts, k, layers, layer;
  int64_t normalize;
};
constexpr uint32_t kRouterThreads = 256;

}  // namespace ds::cuda
